// SPDX-License-Identifier: MIT
// Which reduction tables an x86-64 processor can run.
#include "comm/cpu/reduce_kernels.h"

namespace ddprun {

extern const ReduceKernels kReduceKernelsBaseline;
extern const ReduceKernels kReduceKernelsAvx2;
extern const ReduceKernels kReduceKernelsAvx512;

const ReduceKernels* const* usable_reduce_kernels(std::size_t& count) {
  static const ReduceKernels* const kTables[] = {&kReduceKernelsBaseline, &kReduceKernelsAvx2,
                                                 &kReduceKernelsAvx512};
  __builtin_cpu_init();
  count = 1;
  if (__builtin_cpu_supports("avx2")) {
    count = 2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
      count = 3;
  }
  return kTables;
}

}  // namespace ddprun
