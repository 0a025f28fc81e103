// SPDX-License-Identifier: MIT
// The norm of a gradient and whether all of it is finite, from one reading: a sum of squares that
// is finite has only finite terms. Sums are taken in a fixed order that depends on no property of
// the device, so that replicas on different GPUs clip alike.
#include <ddprun/cuda.h>

#include "base/device_kernels.h"
#include "cuda/element.h"
#include "cuda/element_loop.h"

namespace ddprun {
namespace {

constexpr unsigned kMaxThreads = 256;

/// The same in all threads of the block, whose number is a power of 2.
__device__ double sum_over_block(double mine) {
  __shared__ double sums[kMaxThreads];
  sums[threadIdx.x] = mine;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  const double total = sums[0];
  __syncthreads();
  return total;
}

/// The squares of a pack in f32, their sum in f64: one conversion to f64 per pack keeps the speed
/// of memory.
__device__ double sum_of_squares(Share share, const void* gradient, DType dtype,
                                 std::size_t numel) {
  double sum = 0;
  with_type(dtype, [&](auto element) {
    using T = decltype(element);
    read_packs(
        share, numel,
        [&](const auto& pack) {
          float squares = 0;
          for (const T value : pack.at) squares += to_f32(value) * to_f32(value);
          sum += static_cast<double>(squares);
        },
        In<T>{static_cast<const T*>(gradient)});
  });
  return sum;
}

}  // namespace

// Four blocks a multiprocessor, no more: with that many registers all loads of read_packs are under
// way before the first is used.
extern "C" __global__ void __launch_bounds__(kMaxThreads, 4)
    ddprun_square_sum(SquareSumArguments a) {
  for (std::size_t slot = blockIdx.x; slot < a.kSlots; slot += gridDim.x) {
    const Share share{slot * blockDim.x + threadIdx.x, a.kSlots * blockDim.x};
    const double sum = sum_over_block(sum_of_squares(share, a.gradient, a.gradient_type, a.numel));
    if (threadIdx.x == 0) a.slots[slot] = a.add ? a.slots[slot] + sum : sum;
  }
}

extern "C" __global__ void __launch_bounds__(kMaxThreads) ddprun_norm(NormArguments a) {
  double mine = 0;
  for (std::size_t slot = threadIdx.x; slot < SquareSumArguments::kSlots; slot += blockDim.x)
    mine += a.slots[slot];
  const double squares = sum_over_block(mine);
  if (threadIdx.x != 0) return;
  const bool finite = squares - squares == 0;
  const double norm = a.unscale * std::sqrt(squares);
  a.result->norm = static_cast<float>(norm);
  a.result->factor = finite ? static_cast<float>(clip_factor(a.unscale, norm, a.max_norm)) : 0.0f;
  a.result->found_inf = finite ? 0 : 1;
  a.result->steps += finite ? 1 : 0;
}

}  // namespace ddprun
