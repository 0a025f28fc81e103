// SPDX-License-Identifier: MIT
// How an all_reduce becomes calls of NCCL and, for some means, one kernel after them.
#pragma once

#include <ddprun/backend.h>
#include <ddprun/tensor_view.h>

#include "comm/nccl/nccl_api.h"

namespace ddprun {

/// NCCL's avg multiplies by 1/n rounded to the element type before it adds: in bf16 with n = 3
/// every mean is 0.2 % too large. It is used where 1/n is exact enough, else the sum is scaled in
/// f32.
struct Reduction {
  NcclRedOp op = kNcclSum;
  /// Elements are multiplied by 2^-halvings before they are added, so that sums of f16 stay in
  /// range; if not 0, in place of `op`.
  int halvings = 0;
  /// What the result is multiplied with afterwards, if not 1.
  double factor = 1;
};

Reduction plan_reduction(ReduceOp op, DType dtype, int size);

NcclDataType nccl_type(DType dtype);

/// 2^-halvings as f16, for halvings in 0..14.
std::uint16_t half_power(int halvings);

}  // namespace ddprun
