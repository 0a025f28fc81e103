// SPDX-License-Identifier: MIT
// Updates parameters from their gradients, with PyTorch's arithmetic.
// https://docs.pytorch.org/docs/stable/generated/torch.optim.SGD.html
#pragma once

#include <ddprun/export.h>
#include <ddprun/stream.h>
#include <ddprun/tensor_view.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace ddprun {

struct SgdOptions {
  double lr = 0.1;
  double momentum = 0.0;
};

/// Stochastic gradient descent: buf = momentum * buf + grad (buf = grad at the first step);
/// value -= lr * buf. On a GPU the same bits, by cuda::sgd_step() of ddprun/cuda.h, one launch per
/// parameter; for low precision or one launch for all parameters call that yourself.
/// Shape: f32 or f64 parameters, in CPU memory or on a GPU.
/// Owns:  one momentum buffer per parameter, on its device; `parameters` must outlive it.
class DDPRUN_API Sgd {
 public:
  /// Throws: UsageError for a dtype it cannot update, naming the parameter; for a negative lr or
  ///         momentum; on a GPU DeviceError.
  Sgd(std::span<Parameter> parameters, SgdOptions options);
  /// Leaves the gradients as they are. On a GPU it is launched on `stream`: give the one that
  /// DistributedDataParallel::synchronize() was given. Throws: UsageError for a parameter whose
  /// gradient does not fit its value, before any is updated.
  /// Blocks: the host on the CPU, not at all on a GPU.
  void step(Stream stream = {});
  /// Sets all gradients to 0, for a backward that adds to them instead of overwriting; on a GPU in
  /// the order of `stream`.
  void zero_grad(Stream stream = {});
  /// For warm-up and decay. Throws: UsageError when it is negative.
  void set_lr(double lr);

 private:
  std::span<Parameter> parameters_;
  SgdOptions options_;
  std::vector<std::shared_ptr<std::byte[]>> momentum_;  // by parameter; empty without momentum
};

}  // namespace ddprun
