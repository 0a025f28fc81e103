// SPDX-License-Identifier: MIT
// Names of environment variables that NCCL reads. It ignores all others, and says nothing.
#pragma once

#include <string>
#include <string_view>

namespace ddprun {

bool is_nccl_variable(std::string_view name);
/// NCCL reads its value as a number.
bool is_nccl_integer(std::string_view name);
/// The variable that `name` may have been meant to be; empty when none is close.
std::string nearest_nccl_variable(std::string_view name);

}  // namespace ddprun
