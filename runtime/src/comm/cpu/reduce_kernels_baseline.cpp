// SPDX-License-Identifier: MIT
// The reduction loops with vectors of 16 bytes; see reduce_kernels.h for what may be included.
#include <cstddef>
#include <cstdint>

#include "comm/cpu/reduce_kernels.h"

namespace ddprun {
namespace {
constexpr std::size_t kVectorBytes = 16;
}
}  // namespace ddprun

#include "comm/cpu/reduce_kernels.inc"

namespace ddprun {
extern const ReduceKernels kReduceKernelsBaseline;
constinit const ReduceKernels kReduceKernelsBaseline = make_table("baseline");
}  // namespace ddprun
