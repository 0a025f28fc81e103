// SPDX-License-Identifier: MIT
// What the user reads last: how the job failed. Text only; nothing is looked up.
#pragma once

#include <ddprun/launch.h>

#include <string>

namespace ddprun {

/// The other failures first, one line for all that are equal; the first failure comes last and in
/// full. Empty when the job ended well or because of a signal, with no rank having failed.
std::string format_report(const RunResult& result);

}  // namespace ddprun
