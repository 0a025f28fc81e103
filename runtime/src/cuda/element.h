// SPDX-License-Identifier: MIT
// What the kernels do to one element, in the arithmetic of PyTorch on a CPU: every operation is
// rounded by itself. The kernels are compiled without fused multiply-add, so a GPU gives the same
// bits.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/float16.h"

namespace ddprun {

/// buf = momentum * buf + grad; value -= lr * buf.
/// https://docs.pytorch.org/docs/stable/generated/torch.optim.SGD.html
template <class T>
__host__ __device__ void sgd_element(T& value, T& buffer, T gradient, T lr, T momentum) {
  buffer = momentum * buffer + gradient;
  value -= lr * buffer;
}

/// The numbers of one step that all elements share, computed in f64 and rounded once.
struct AdamWFactors {
  float decay, new_share1, beta2, new_share2, root_of_correction2, eps, step_size;
};

/// `step` counts from 1.
__host__ __device__ inline AdamWFactors adamw_factors(double lr, double beta1, double beta2,
                                                      double eps, double weight_decay,
                                                      std::int64_t step) {
  const double correction1 = 1 - std::pow(beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(beta2, static_cast<double>(step));
  return {static_cast<float>(1 - lr * weight_decay),
          static_cast<float>(1 - beta1),
          static_cast<float>(beta2),
          static_cast<float>(1 - beta2),
          static_cast<float>(std::sqrt(correction2)),
          static_cast<float>(eps),
          static_cast<float>(lr / correction1)};
}

/// https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html
__host__ __device__ inline void adamw_element(float& value, float& first, float& second,
                                              float gradient, const AdamWFactors& f) {
  value *= f.decay;
  first += f.new_share1 * (gradient - first);
  second = second * f.beta2 + f.new_share2 * gradient * gradient;
  const float root = std::sqrt(second) / f.root_of_correction2 + f.eps;
  value -= f.step_size * first / root;
}

/// What a gradient is multiplied by so that it is unscaled and its norm is at most max_norm.
/// https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html
__host__ __device__ inline double clip_factor(double unscale, double norm, double max_norm) {
  const double coefficient = max_norm / (norm + 1e-6);
  return coefficient < 1 ? unscale * coefficient : unscale;
}

}  // namespace ddprun
