// SPDX-License-Identifier: MIT
// Optimizer steps: one pass in which the gradient is unscaled, clipped, and used. Whether the step
// is to be skipped is read from device memory, so that the host need not wait to know.
#include <ddprun/cuda.h>

#include "base/device_kernels.h"
#include "cuda/element.h"
#include "cuda/element_loop.h"

namespace ddprun {
namespace {

__device__ float factor_of(const cuda::NormResult* norm) {
  return norm == nullptr ? 1.0f : norm->factor;
}

__device__ bool skipped(const cuda::NormResult* norm) {
  return norm != nullptr && norm->found_inf != 0;
}

__device__ void sgd_f64(const SgdArguments& a) {
  const double factor = factor_of(a.norm);
  for_each_element(
      share_of_grid(), a.numel,
      [=](double gradient, double& value, double& momentum) {
        sgd_element(value, momentum, gradient * factor, a.lr, a.momentum_factor);
      },
      In<double>{static_cast<const double*>(a.gradient)},
      InOut<double>{static_cast<double*>(a.value)},
      InOut<double>{static_cast<double*>(a.momentum)});
}

template <class Gradient, class Copy>
__device__ void sgd_f32(const SgdArguments& a) {
  const float factor = factor_of(a.norm);
  const float lr = static_cast<float>(a.lr);
  const float momentum_factor = static_cast<float>(a.momentum_factor);
  for_each_element(
      share_of_grid(), a.numel,
      [=](Gradient gradient, float& value, float& momentum, Copy& copy) {
        sgd_element(value, momentum, to_f32(gradient) * factor, lr, momentum_factor);
        copy = round_to<Copy>(value);
      },
      In<Gradient>{static_cast<const Gradient*>(a.gradient)},
      InOut<float>{static_cast<float*>(a.value)}, InOut<float>{static_cast<float*>(a.momentum)},
      Out<Copy>{static_cast<Copy*>(a.copy)});
}

template <class Gradient, class Copy>
__device__ void adamw(const AdamWArguments& a, const AdamWFactors& factors) {
  const float factor = factor_of(a.norm);
  for_each_element(
      share_of_grid(), a.numel,
      [=](Gradient gradient, float& value, float& first, float& second, Copy& copy) {
        adamw_element(value, first, second, to_f32(gradient) * factor, factors);
        copy = round_to<Copy>(value);
      },
      In<Gradient>{static_cast<const Gradient*>(a.gradient)}, InOut<float>{a.value},
      InOut<float>{a.first_moment}, InOut<float>{a.second_moment},
      Out<Copy>{static_cast<Copy*>(a.copy)});
}

/// body(Gradient{}, Copy{}): a 16-bit copy is of the gradient's type, or of either if that is f32.
template <class Body>
__device__ void with_types(DType gradient_type, DType copy_type, const Body& body) {
  with_type(gradient_type, [=](auto gradient) {
    if (copy_type == DType::bf16) body(gradient, Bf16{});
    if (copy_type == DType::f16) body(gradient, F16{});
  });
}

}  // namespace

extern "C" __global__ void __launch_bounds__(256) ddprun_sgd(SgdArguments a) {
  if (skipped(a.norm)) return;
  if (a.value_type == DType::f64) return sgd_f64(a);
  with_types(a.gradient_type, a.copy_type,
             [=](auto gradient, auto copy) { sgd_f32<decltype(gradient), decltype(copy)>(a); });
}

extern "C" __global__ void __launch_bounds__(256) ddprun_adamw(AdamWArguments a) {
  if (skipped(a.norm)) return;
  __shared__ AdamWFactors factors;
  if (threadIdx.x == 0)
    factors = adamw_factors(a.lr, a.beta1, a.beta2, a.eps, a.weight_decay,
                            a.norm == nullptr ? a.step : a.norm->steps);
  __syncthreads();
  const AdamWFactors mine = factors;
  with_types(a.gradient_type, a.copy_type,
             [=](auto gradient, auto copy) { adamw<decltype(gradient), decltype(copy)>(a, mine); });
}

}  // namespace ddprun
