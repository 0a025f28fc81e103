// SPDX-License-Identifier: MIT
// Processors that are not x86-64: what every compiler can make; see processor.h.
#include <atomic>

#include "comm/cpu/processor.h"

namespace ddprun {

extern const ReduceKernels kReduceKernelsBaseline;

std::span<const ReduceKernels* const> usable_reduce_kernels() {
  static constexpr const ReduceKernels* kTables[] = {&kReduceKernelsBaseline};
  return kTables;
}

void pause_core() { std::atomic_signal_fence(std::memory_order_seq_cst); }

}  // namespace ddprun
