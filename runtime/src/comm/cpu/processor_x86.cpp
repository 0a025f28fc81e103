// SPDX-License-Identifier: MIT
// x86-64; see processor.h.
#include "comm/cpu/processor.h"

namespace ddprun {

extern const ReduceKernels kReduceKernelsBaseline;
extern const ReduceKernels kReduceKernelsAvx2;
extern const ReduceKernels kReduceKernelsAvx512;

std::span<const ReduceKernels* const> usable_reduce_kernels() {
  static constexpr const ReduceKernels* kTables[] = {&kReduceKernelsBaseline, &kReduceKernelsAvx2,
                                                     &kReduceKernelsAvx512};
  const std::span<const ReduceKernels* const> tables(kTables);
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2")) return tables.first(1);
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return avx512 ? tables : tables.first(2);
}

void pause_core() { __builtin_ia32_pause(); }

}  // namespace ddprun
