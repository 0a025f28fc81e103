// SPDX-License-Identifier: MIT
// Splits the words of a command line at the program: options of ddprun before it, each exact and
// in the table; the program and all that follows, untouched.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "option_table.h"

namespace ddprun {

struct GivenOption {
  const Option* option;
  OptionValue value;
};

struct Argv {
  std::vector<GivenOption> options;  // in the order given
  std::vector<std::string> command;  // empty only after --help or --version
};

/// `--name value`, `--name=value`, `-r3`, `-r 3`; a word that begins with '-' and no digit is no
/// value of `--name` (write `--name=-word`). `--` before the program is dropped. --help and
/// --version end the reading. Abbreviations are refused: a new option would change what they mean.
/// Throws: UsageError, one line, naming the word and the nearest option.
Argv split_words(std::span<const char* const> words);

}  // namespace ddprun
