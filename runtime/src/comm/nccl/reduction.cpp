// SPDX-License-Identifier: MIT
// Which operation of NCCL gives the mean; see reduction.h.
#include "comm/nccl/reduction.h"

#include <bit>

namespace ddprun {

Reduction plan_reduction(ReduceOp op, DType dtype, int size) {
  switch (op) {
    case ReduceOp::sum:
      return {kNcclSum};
    case ReduceOp::min:
      return {kNcclMin};
    case ReduceOp::max:
      return {kNcclMax};
    case ReduceOp::avg:
      break;
  }
  const auto n = static_cast<unsigned>(size);
  const bool half = dtype == DType::f16 || dtype == DType::bf16;
  if (!half || std::has_single_bit(n)) return {kNcclAvg};
  if (dtype == DType::bf16) return {kNcclSum, 0, 1.0 / size};  // it has the range of f32
  const int halvings = static_cast<int>(std::bit_width(n)) - 1;
  return {kNcclSum, halvings, static_cast<double>(1U << halvings) / size};
}

NcclDataType nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return kNcclFloat32;
    case DType::f64:
      return kNcclFloat64;
    case DType::i32:
      return kNcclInt32;
    case DType::i64:
      return kNcclInt64;
    case DType::f16:
      return kNcclFloat16;
    case DType::bf16:
      return kNcclBfloat16;
  }
  return kNcclFloat32;
}

std::uint16_t half_power(int halvings) {
  constexpr int kExponentOfOne = 15, kMantissaBits = 10;
  return static_cast<std::uint16_t>((kExponentOfOne - halvings) << kMantissaBits);
}

}  // namespace ddprun
