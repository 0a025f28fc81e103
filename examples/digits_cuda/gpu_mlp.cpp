// SPDX-License-Identifier: MIT
// Forward and backward with cuBLAS and the kernels; see gpu_mlp.h.
#include "gpu_mlp.h"

#include <numeric>
#include <type_traits>

#include "digits/mlp.h"

namespace digits {
namespace {

constexpr std::size_t product(int a, int b) {
  return static_cast<std::size_t>(a) * static_cast<std::size_t>(b);
}

// How many elements the rounded copy of an array needs.
template <class T, class In>
constexpr std::size_t copy_size(std::size_t size) {
  return std::is_same_v<T, In> ? 0 : size;
}

}  // namespace

template <class T, class In>
GpuMlp<T, In>::GpuMlp(Sizes sizes, std::uint32_t seed, ddprun::Device device, cudaStream_t stream)
    : sizes_(sizes),
      stream_(stream),
      gemm_(stream),
      values_(product(sizes.hidden, sizes.inputs + 1) + product(sizes.outputs, sizes.hidden + 1)),
      activations_(product(sizes.rows, sizes.hidden)),
      scores_(product(sizes.rows, sizes.outputs)),
      hidden_grads_(activations_.size()),
      rounded_{DeviceArray<In>(copy_size<T, In>(product(sizes.inputs, sizes.hidden))),
               DeviceArray<In>(copy_size<T, In>(product(sizes.hidden, sizes.outputs))),
               DeviceArray<In>(copy_size<T, In>(activations_.size())),
               DeviceArray<In>(copy_size<T, In>(scores_.size())),
               DeviceArray<In>(copy_size<T, In>(hidden_grads_.size()))},
      row_losses_(static_cast<std::size_t>(sizes.rows)),
      loss_sum_(1) {
  constexpr ddprun::DType dtype =
      std::is_same_v<T, float> ? ddprun::DType::f32 : ddprun::DType::f64;
  Mlp start(static_cast<std::size_t>(sizes.inputs), static_cast<std::size_t>(sizes.hidden),
            static_cast<std::size_t>(sizes.outputs), seed);
  std::vector<T> values;
  for (const ddprun::Parameter& p : start.parameters()) {
    T* const place = values_.data() + values.size();
    parameters_.push_back({p.name, p.shape, {place, p.value.numel, dtype, device}, {}});
    const std::span from(static_cast<const double*>(p.value.data), p.value.numel);
    for (const double v : from) values.push_back(static_cast<T>(v));
  }
  copy_to_device(std::span<const T>(values), values_.data(), stream);
  check(cudaMemsetAsync(loss_sum_.data(), 0, sizeof(T), stream), "cudaMemsetAsync");
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

template <class T, class In>
const In* GpuMlp<T, In>::input(const T* numbers, int n, DeviceArray<In>& rounded) {
  if constexpr (std::is_same_v<T, In>) {
    return numbers;
  } else {
    launch::round_to_bf16(numbers, n, rounded.data(), stream_);
    return rounded.data();
  }
}

template <class T, class In>
auto GpuMlp<T, In>::forward(const Batch<In>& batch) -> Inputs {
  const auto [inputs, hidden, outputs, ignored] = sizes_;
  const std::size_t fc1_bias = parameters_.size() - 3;
  const In* const fc1_weight = input(value(0), inputs * hidden, rounded_.fc1_weight);
  gemm_.multiply({CUBLAS_OP_N, batch.pixels, inputs}, {CUBLAS_OP_T, fc1_weight, inputs}, batch.rows,
                 hidden, inputs, activations_.data());
  launch::add_bias_relu(activations_.data(), value(fc1_bias), batch.rows, hidden, stream_);
  const In* const activations =
      input(activations_.data(), batch.rows * hidden, rounded_.activations);
  const In* const fc2_weight = input(value(fc1_bias + 1), hidden * outputs, rounded_.fc2_weight);
  gemm_.multiply({CUBLAS_OP_N, activations, hidden}, {CUBLAS_OP_T, fc2_weight, hidden}, batch.rows,
                 outputs, hidden, scores_.data());
  launch::add_bias(scores_.data(), value(fc1_bias + 2), batch.rows, outputs, stream_);
  return {activations, fc2_weight};
}

template <class T, class In>
void GpuMlp<T, In>::backward(const Batch<In>& batch,
                             const std::function<void(std::size_t)>& ready) {
  const auto [inputs, hidden, outputs, ignored] = sizes_;
  const int rows = batch.rows;
  const auto [activations, fc2_weight] = forward(batch);
  launch::softmax_loss(scores_.data(), batch.labels, rows, outputs, row_losses_.data(),
                       loss_sum_.data(), stream_);

  std::size_t i = parameters_.size() - 1;  // from the last parameter to the first
  launch::sum_rows(scores_.data(), rows, outputs, grad(i), stream_);
  ready(i--);
  const In* const scores = input(scores_.data(), rows * outputs, rounded_.scores);
  gemm_.multiply({CUBLAS_OP_T, scores, outputs}, {CUBLAS_OP_N, activations, hidden}, outputs,
                 hidden, rows, grad(i));
  ready(i--);

  gemm_.multiply({CUBLAS_OP_N, scores, outputs}, {CUBLAS_OP_N, fc2_weight, hidden}, rows, hidden,
                 outputs, hidden_grads_.data());
  launch::relu_backward(activations_.data(), hidden_grads_.data(), rows * hidden, stream_);
  launch::sum_rows(hidden_grads_.data(), rows, hidden, grad(i), stream_);
  ready(i);
  const In* const hidden_grads = input(hidden_grads_.data(), rows * hidden, rounded_.hidden_grads);
  for (int first_row = hidden; i-- > 0;) {
    const int block_rows = static_cast<int>(parameters_[i].shape[0]);
    first_row -= block_rows;
    gemm_.multiply({CUBLAS_OP_T, hidden_grads + first_row, hidden},
                   {CUBLAS_OP_N, batch.pixels, inputs}, block_rows, inputs, rows, grad(i));
    ready(i);
  }
}

template <class T, class In>
double GpuMlp<T, In>::take_loss_sum() {
  T sum = 0;
  copy_to_host(loss_sum_.data(), std::span(&sum, 1), stream_);
  check(cudaMemsetAsync(loss_sum_.data(), 0, sizeof(T), stream_), "cudaMemsetAsync");
  return static_cast<double>(sum);
}

template <class T, class In>
double GpuMlp<T, In>::accuracy(const Batch<In>& batch) {
  forward(batch);
  const auto rows = static_cast<std::size_t>(batch.rows);
  DeviceArray<int> right(rows);
  launch::mark_right(scores_.data(), batch.labels, batch.rows, sizes_.outputs, right.data(),
                     stream_);
  std::vector<int> result(rows);
  copy_to_host(right.data(), std::span(result), stream_);
  return std::accumulate(result.begin(), result.end(), 0.0) / static_cast<double>(rows);
}

template <class T, class In>
std::vector<T> GpuMlp<T, In>::values() const {
  std::vector<T> result(values_.size());
  copy_to_host(values_.data(), std::span(result), stream_);
  return result;
}

template class GpuMlp<float, float>;
template class GpuMlp<double, double>;
template class GpuMlp<float, __nv_bfloat16>;

}  // namespace digits
