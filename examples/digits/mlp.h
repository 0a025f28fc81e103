// SPDX-License-Identifier: MIT
// A multilayer perceptron with one hidden layer (ReLU) and softmax cross-entropy, with its own
// backward. It knows nothing of ranks: it says which gradient it has finished.
#pragma once

#include <ddprun/tensor_view.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace digits {

/// f64: the model is tiny, and so runs on 1, 2 and 4 ranks agree to the last printed digit although
/// they add gradients in different orders.
class Mlp {
 public:
  /// Weights and biases of a layer are uniform in +-1/sqrt(its inputs), as in PyTorch's Linear; the
  /// same seed gives the same ones everywhere.
  Mlp(std::size_t inputs, std::size_t hidden, std::size_t outputs, std::uint32_t seed);
  Mlp(const Mlp&) = delete;
  Mlp& operator=(const Mlp&) = delete;

  /// The first layer's weight is cut into parameters of 16 rows ("fc1.weight.0", ...), so that
  /// there is something to reduce while the rest of it is still being computed.
  std::span<ddprun::Parameter> parameters() { return parameters_; }

  /// Writes the gradient of the mean loss over the batch to every parameter's grad, and calls
  /// ready(i) after parameter i. Returns that loss.
  /// Shape: x is labels.size() x inputs, row-major.
  double backward(std::span<const double> x, std::span<const int> labels,
                  const std::function<void(std::size_t)>& ready);

  /// The share of samples whose label gets the highest score.
  double accuracy(std::span<const double> x, std::span<const int> labels);

 private:
  void forward(std::span<const double> x, std::size_t rows);
  /// Replaces scores_ by the gradient of the mean loss with respect to them.
  double loss_backward(std::span<const int> labels);

  std::size_t inputs_;
  std::size_t hidden_;
  std::size_t outputs_;
  std::vector<double> values_;  // fc1.weight, fc1.bias, fc2.weight, fc2.bias; weights [out][in]
  std::vector<double> grads_;   // the same; used until grad points elsewhere
  std::vector<ddprun::Parameter> parameters_;
  std::vector<double> activations_;   // rows x hidden, after ReLU
  std::vector<double> scores_;        // rows x outputs
  std::vector<double> hidden_grads_;  // rows x hidden
};

}  // namespace digits
