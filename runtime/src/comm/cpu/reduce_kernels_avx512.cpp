// SPDX-License-Identifier: MIT
// The reduction loops with vectors of 64 bytes; see reduce_kernels.h for what may be included.
#include <cstddef>
#include <cstdint>

#include "comm/cpu/reduce_kernels.h"

namespace ddprun {
namespace {
constexpr std::size_t kVectorBytes = 64;
}
}  // namespace ddprun

#include "comm/cpu/reduce_kernels.inc"

namespace ddprun {
extern const ReduceKernels kReduceKernelsAvx512;
constinit const ReduceKernels kReduceKernelsAvx512 = make_table("avx512");
}  // namespace ddprun
