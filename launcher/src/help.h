// SPDX-License-Identifier: MIT
// What --help and --version print.
#pragma once

#include <string>

namespace ddprun {

/// Options by group with their defaults, at most 100 columns.
std::string help_text();
std::string version_text();

}  // namespace ddprun
