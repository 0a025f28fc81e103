// SPDX-License-Identifier: MIT
// Command lines as tests write them.
#pragma once

#include <ddprun/launch.h>

#include <string>
#include <vector>

namespace ddprun::test {

inline CommandLine parse(const std::vector<std::string>& words) {
  std::vector<const char*> pointers;
  for (const std::string& word : words) pointers.push_back(word.c_str());
  return parse_command_line(pointers);
}

/// What parse throws; empty when it throws nothing.
inline std::string error_of(const std::vector<std::string>& words) {
  try {
    parse(words);
    return "";
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace ddprun::test
