// SPDX-License-Identifier: MIT
// The network of mlp.h on a GPU: everything is launched on one stream, and nothing waits for it but
// the two functions that say so.
#pragma once

#include <ddprun/tensor_view.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "device.h"
#include "gemm.h"
#include "samples.h"

namespace digits {

/// T: float or double, the type of parameters, gradients and sums. In: T, or __nv_bfloat16 for
/// matrix products of rounded inputs, as under torch.autocast.
template <class T, class In>
class GpuMlp {
 public:
  struct Sizes {
    int inputs, hidden, outputs;
    int rows;  // of the largest batch
  };

  /// Has the parameters of an Mlp with this seed: names, shapes and values.
  GpuMlp(Sizes sizes, std::uint32_t seed, ddprun::Device device, cudaStream_t stream);

  std::span<ddprun::Parameter> parameters() { return parameters_; }

  /// Launches the gradient of the mean loss over the batch to every parameter's grad, and calls
  /// ready(i) when that of parameter i has been launched.
  void backward(const Batch<In>& batch, const std::function<void(std::size_t)>& ready);

  /// The sum of the mean losses of all batches since the last call. Blocks: until they are done.
  double take_loss_sum();
  /// The share of samples whose label gets the highest score. Blocks: until it is known.
  double accuracy(const Batch<In>& batch);
  /// All values, in the order of the parameters. Blocks: until they are here.
  std::vector<T> values() const;

 private:
  struct Inputs {
    const In* activations;
    const In* fc2_weight;
  };
  /// Launches the scores; returns what backward's products read as well.
  Inputs forward(const Batch<In>& batch);
  T* value(std::size_t i) const { return static_cast<T*>(parameters_[i].value.data); }
  T* grad(std::size_t i) const { return static_cast<T*>(parameters_[i].grad.data); }
  /// What products read in place of n numbers: themselves, or `rounded`, filled from them.
  const In* input(const T* numbers, int n, DeviceArray<In>& rounded);

  // Copies for products; empty where In is T.
  struct Rounded {
    DeviceArray<In> fc1_weight, fc2_weight, activations, scores, hidden_grads;
  };

  Sizes sizes_;
  cudaStream_t stream_;
  Gemm gemm_;
  DeviceArray<T> values_;
  std::vector<ddprun::Parameter> parameters_;
  DeviceArray<T> activations_;   // rows x hidden, after ReLU
  DeviceArray<T> scores_;        // rows x outputs
  DeviceArray<T> hidden_grads_;  // rows x hidden
  Rounded rounded_;
  DeviceArray<T> row_losses_;
  DeviceArray<T> loss_sum_;
};

}  // namespace digits
