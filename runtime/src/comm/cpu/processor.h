// SPDX-License-Identifier: MIT
// What depends on the processor; one source file for each kind.
#pragma once

#include <span>

#include "comm/cpu/reduce_kernels.h"

namespace ddprun {

/// The reduction tables this machine can run, slowest first.
std::span<const ReduceKernels* const> usable_reduce_kernels();

/// Tells the core that it spins: it gives way to its other thread and saves power.
void pause_core();

}  // namespace ddprun
