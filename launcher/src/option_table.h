// SPDX-License-Identifier: MIT
// The one list of ddprun's options: argv splits words by it, cli applies it, help prints it, and a
// test holds conf/default.toml to it.
#pragma once

#include <ddprun/launch.h>

#include <span>
#include <string>
#include <string_view>

#include "option_value.h"

namespace ddprun {

/// Which part of LaunchConfig an option sets. `about` options ask for a text instead of a run:
/// they have no PET_* variable and no key in conf/default.toml.
enum class OptionGroup { program, nodes, logs, stop, about };

/// "nodes": the group in --help and its table in conf/default.toml.
std::string_view name_of(OptionGroup group);

struct Option {
  std::string_view name;               // "nproc_per_node"; a dash means the same as an underscore
  char short_name = 0;                 // 'r': -r as well
  std::string_view value_name = "";    // "N|auto|cpu|gpu"; empty: a flag
  std::string_view default_text = "";  // as it would be given; empty: there is no such value
  OptionGroup group;
  std::string_view help;
  std::string_view second_variable = "";  // read after the PET_* variable
  /// Throws: UsageError naming the value's label().
  void (*apply)(CommandLine& line, const OptionValue& value);

  bool is_flag() const { return value_name.empty(); }
  /// "PET_NPROC_PER_NODE"; empty for an `about` option.
  std::string variable() const;
};

/// In the order of application: nproc_per_node before the maps of ranks that are read against it,
/// standalone before the port that it only proposes.
std::span<const Option> option_table();

/// A torchrun option that this version does not have.
struct AbsentOption {
  std::string_view name;
  std::string_view advice = "";  // what to do without it

  std::string variable() const;
};
std::span<const AbsentOption> absent_options();

}  // namespace ddprun
