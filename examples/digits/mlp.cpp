// SPDX-License-Identifier: MIT
// Forward and backward with BLAS; see mlp.h.
#include "mlp.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include <cblas.h>

namespace digits {
namespace {

constexpr std::size_t kRowsPerBlock = 16;

// c = op(a) * op(b) + beta * c, row-major; op(a) is m x k, op(b) k x n.
void gemm(CBLAS_TRANSPOSE op_a, CBLAS_TRANSPOSE op_b, std::size_t m, std::size_t n, std::size_t k,
          const double* a, std::size_t lda, const double* b, std::size_t ldb, double beta,
          double* c) {
  const auto size = [](std::size_t v) { return static_cast<blasint>(v); };
  cblas_dgemm(CblasRowMajor, op_a, op_b, size(m), size(n), size(k), 1.0, a, size(lda), b, size(ldb),
              beta, c, size(n));
}

void fill_rows(std::vector<double>& matrix, std::size_t rows, std::span<const double> row) {
  matrix.clear();
  for (std::size_t r = 0; r < rows; ++r) matrix.insert(matrix.end(), row.begin(), row.end());
}

void sum_rows(std::span<const double> matrix, std::span<double> sum) {
  std::ranges::fill(sum, 0.0);
  for (std::size_t begin = 0; begin < matrix.size(); begin += sum.size())
    for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += matrix[begin + k];
}

std::span<double> as_span(const ddprun::TensorView& tensor) {
  return {static_cast<double*>(tensor.data), tensor.numel};
}

// Uniform in [-bound, bound). std::uniform_real_distribution differs between libraries.
void fill_uniform(std::span<double> values, double bound, std::mt19937& generator) {
  for (double& v : values)
    v = bound * (2.0 * static_cast<double>(generator()) / 4294967296.0 - 1.0);
}

}  // namespace

Mlp::Mlp(std::size_t inputs, std::size_t hidden, std::size_t outputs, std::uint32_t seed)
    : inputs_(inputs),
      hidden_(hidden),
      outputs_(outputs),
      values_(hidden * (inputs + 1) + outputs * (hidden + 1)),
      grads_(values_.size()) {
  std::mt19937 generator(seed);
  const std::span<double> values(values_);
  const std::size_t first_layer = hidden * (inputs + 1);
  fill_uniform(values.first(first_layer), 1 / std::sqrt(static_cast<double>(inputs)), generator);
  fill_uniform(values.subspan(first_layer), 1 / std::sqrt(static_cast<double>(hidden)), generator);

  std::size_t begin = 0;
  const auto add = [&](std::string name, std::vector<std::size_t> shape) {
    std::size_t numel = 1;
    for (const std::size_t extent : shape) numel *= extent;
    parameters_.push_back({std::move(name),
                           {shape.begin(), shape.end()},
                           ddprun::view(values.subspan(begin, numel)),
                           ddprun::view(std::span(grads_).subspan(begin, numel))});
    begin += numel;
  };
  for (std::size_t row = 0; row < hidden; row += kRowsPerBlock)
    add("fc1.weight." + std::to_string(row / kRowsPerBlock),
        {std::min(kRowsPerBlock, hidden - row), inputs});
  add("fc1.bias", {hidden});
  add("fc2.weight", {outputs, hidden});
  add("fc2.bias", {outputs});
}

void Mlp::forward(std::span<const double> x, std::size_t rows) {
  const double* const fc1_weight = values_.data();
  const std::span<const double> fc1_bias(fc1_weight + hidden_ * inputs_, hidden_);
  const double* const fc2_weight = fc1_bias.data() + hidden_;
  const std::span<const double> fc2_bias(fc2_weight + outputs_ * hidden_, outputs_);
  fill_rows(activations_, rows, fc1_bias);
  gemm(CblasNoTrans, CblasTrans, rows, hidden_, inputs_, x.data(), inputs_, fc1_weight, inputs_, 1,
       activations_.data());
  for (double& a : activations_) a = std::max(a, 0.0);
  fill_rows(scores_, rows, fc2_bias);
  gemm(CblasNoTrans, CblasTrans, rows, outputs_, hidden_, activations_.data(), hidden_, fc2_weight,
       hidden_, 1, scores_.data());
}

double Mlp::loss_backward(std::span<const int> labels) {
  const auto rows = static_cast<double>(labels.size());
  double loss = 0;
  for (std::size_t r = 0; r < labels.size(); ++r) {
    const auto scores = std::span(scores_).subspan(r * outputs_, outputs_);
    const auto label = static_cast<std::size_t>(labels[r]);
    const double largest = *std::ranges::max_element(scores);
    const double label_score = scores[label] - largest;
    double sum = 0;
    for (double& s : scores) sum += s = std::exp(s - largest);
    loss += std::log(sum) - label_score;
    for (double& s : scores) s /= sum * rows;
    scores[label] -= 1 / rows;
  }
  return loss / rows;
}

double Mlp::backward(std::span<const double> x, std::span<const int> labels,
                     const std::function<void(std::size_t)>& ready) {
  const std::size_t rows = labels.size();
  forward(x, rows);
  const double loss = loss_backward(labels);

  std::size_t i = parameters_.size() - 1;  // from the last parameter to the first
  sum_rows(scores_, as_span(parameters_[i].grad));
  ready(i--);
  gemm(CblasTrans, CblasNoTrans, outputs_, hidden_, rows, scores_.data(), outputs_,
       activations_.data(), hidden_, 0, as_span(parameters_[i].grad).data());
  const double* const fc2_weight = as_span(parameters_[i].value).data();
  ready(i--);

  hidden_grads_.resize(rows * hidden_);
  gemm(CblasNoTrans, CblasNoTrans, rows, hidden_, outputs_, scores_.data(), outputs_, fc2_weight,
       hidden_, 0, hidden_grads_.data());
  for (std::size_t k = 0; k < hidden_grads_.size(); ++k)
    if (activations_[k] <= 0) hidden_grads_[k] = 0;
  sum_rows(hidden_grads_, as_span(parameters_[i].grad));
  ready(i);
  while (i-- > 0) {
    const auto block_rows = static_cast<std::size_t>(parameters_[i].shape[0]);
    gemm(CblasTrans, CblasNoTrans, block_rows, inputs_, rows,
         hidden_grads_.data() + i * kRowsPerBlock, hidden_, x.data(), inputs_, 0,
         as_span(parameters_[i].grad).data());
    ready(i);
  }
  return loss;
}

double Mlp::accuracy(std::span<const double> x, std::span<const int> labels) {
  forward(x, labels.size());
  std::size_t right = 0;
  for (std::size_t r = 0; r < labels.size(); ++r) {
    const auto scores = std::span(scores_).subspan(r * outputs_, outputs_);
    const auto best = std::ranges::max_element(scores) - scores.begin();
    if (best == labels[r]) ++right;
  }
  return static_cast<double>(right) / static_cast<double>(labels.size());
}

}  // namespace digits
