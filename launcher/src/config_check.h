// SPDX-License-Identifier: MIT
// What must hold before anything is started, whether a command line or a program made the
// configuration. Looks, and changes nothing: whether the program exists is learnt by starting it,
// and whether a directory can be made by making it.
#pragma once

#include <ddprun/launch.h>

namespace ddprun {

/// Throws: UsageError, one line, naming the option at fault.
void check_config(const LaunchConfig& config);

}  // namespace ddprun
