// SPDX-License-Identifier: MIT
// The backward of flat_bf16.cu.
#pragma once

#include <cuda_bf16.h>

/// One thread per element. Eighths up to 8, with the sign of the weight: their sums over ranks are
/// exact in bf16.
__global__ void flat_backward(const __nv_bfloat16* weights, int n, int rank, int step,
                              __nv_bfloat16* gradient) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  const float size = static_cast<float>((i + 3 * step) % 7 + 2 * rank + 1) / 8;
  gradient[i] = __float2bfloat16(__bfloat162float(weights[i]) > 0 ? size : -size);
}
