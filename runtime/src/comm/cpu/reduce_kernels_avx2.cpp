// SPDX-License-Identifier: MIT
// The reduction loops with vectors of 32 bytes; see reduce_kernels.h for what may be included.
#include <cstddef>
#include <cstdint>

#include "comm/cpu/reduce_kernels.h"

namespace ddprun {
namespace {
constexpr std::size_t kVectorBytes = 32;
}
}  // namespace ddprun

#include "comm/cpu/reduce_kernels.inc"

namespace ddprun {
extern const ReduceKernels kReduceKernelsAvx2;
constinit const ReduceKernels kReduceKernelsAvx2 = make_table("avx2");
}  // namespace ddprun
