// SPDX-License-Identifier: MIT
// Updates parameters from their gradients, with PyTorch's arithmetic.
// https://docs.pytorch.org/docs/stable/generated/torch.optim.SGD.html
#pragma once

#include <ddprun/export.h>
#include <ddprun/tensor_view.h>

#include <cstddef>
#include <span>
#include <vector>

namespace ddprun {

struct SgdOptions {
  double lr = 0.1;
  double momentum = 0.0;
};

/// Stochastic gradient descent: buf = momentum * buf + grad (buf = grad at the first step);
/// value -= lr * buf.
/// Shape: f32 or f64 parameters in CPU memory.
/// Owns:  one momentum buffer per parameter; `parameters` must outlive it.
class DDPRUN_API Sgd {
 public:
  /// Throws: UsageError for a dtype or device it cannot update, naming the parameter; for a negative
  ///         lr or momentum.
  Sgd(std::span<Parameter> parameters, SgdOptions options);
  /// Leaves the gradients as they are. Throws: UsageError for a parameter whose gradient does not
  /// fit its value.
  void step();
  /// Sets all gradients to 0, for a backward that adds to them instead of overwriting.
  void zero_grad();
  /// For warm-up and decay. Throws: UsageError when it is negative.
  void set_lr(double lr);

 private:
  std::span<Parameter> parameters_;
  SgdOptions options_;
  std::vector<std::vector<std::byte>> momentum_;
};

}  // namespace ddprun
