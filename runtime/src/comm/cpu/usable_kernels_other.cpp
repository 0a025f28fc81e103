// SPDX-License-Identifier: MIT
// Which reduction tables a processor that is not x86-64 can run: the one every compiler can make.
#include "comm/cpu/reduce_kernels.h"

namespace ddprun {

extern const ReduceKernels kReduceKernelsBaseline;

const ReduceKernels* const* usable_reduce_kernels(std::size_t& count) {
  static const ReduceKernels* const kTables[] = {&kReduceKernelsBaseline};
  count = 1;
  return kTables;
}

}  // namespace ddprun
