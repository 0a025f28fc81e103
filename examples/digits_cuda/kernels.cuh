// SPDX-License-Identifier: MIT
// Everything in the network that is not a matrix product. Matrices are row-major. One thread makes
// one element of the result, or one sum, in a fixed order: every run has the same bits.
#pragma once

#include <cmath>
#include <cstddef>

#include <cuda_bf16.h>

namespace digits {

inline __device__ int this_thread() {
  return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}

/// One thread per element of `to`, rows x width.
template <class In>
__global__ void gather_rows(const In* table, const int* table_labels, const std::size_t* indices,
                            int rows, int width, In* to, int* labels) {
  const int i = this_thread();
  if (i >= rows * width) return;
  const std::size_t sample = indices[i / width];
  to[i] = table[sample * width + i % width];
  if (i % width == 0) labels[i / width] = table_labels[sample];
}

__global__ void round_to_bf16(const float* from, int n, __nv_bfloat16* to) {
  const int i = this_thread();
  if (i < n) to[i] = __float2bfloat16(from[i]);
}

template <class T>
__global__ void add_bias(T* matrix, const T* bias, int rows, int width) {
  const int i = this_thread();
  if (i < rows * width) matrix[i] += bias[i % width];
}

template <class T>
__global__ void add_bias_relu(T* matrix, const T* bias, int rows, int width) {
  const int i = this_thread();
  if (i >= rows * width) return;
  const T sum = matrix[i] + bias[i % width];
  matrix[i] = sum > 0 ? sum : 0;
}

/// Sets to 0 the gradients of units that were not active.
template <class T>
__global__ void relu_backward(const T* activations, T* grads, int n) {
  const int i = this_thread();
  if (i < n && !(activations[i] > 0)) grads[i] = 0;
}

/// One thread per row. Replaces `scores` by the gradient of the mean loss with respect to them.
template <class T>
__global__ void softmax_loss(T* scores, const int* labels, int rows, int width, T* row_losses) {
  const int r = this_thread();
  if (r >= rows) return;
  T* const row = scores + r * width;
  T largest = row[0];
  for (int k = 1; k < width; ++k) largest = row[k] > largest ? row[k] : largest;
  const T label_score = row[labels[r]] - largest;
  T sum = 0;
  for (int k = 0; k < width; ++k) sum += row[k] = std::exp(row[k] - largest);
  row_losses[r] = std::log(sum) - label_score;
  for (int k = 0; k < width; ++k) row[k] /= sum * static_cast<T>(rows);
  row[labels[r]] -= 1 / static_cast<T>(rows);
}

/// One thread: *sum += the mean of n numbers.
template <class T>
__global__ void add_mean(const T* numbers, int n, T* sum) {
  T total = 0;
  for (int k = 0; k < n; ++k) total += numbers[k];
  *sum += total / static_cast<T>(n);
}

/// One thread per column.
template <class T>
__global__ void sum_rows(const T* matrix, int rows, int width, T* sums) {
  const int k = this_thread();
  if (k >= width) return;
  T sum = 0;
  for (int r = 0; r < rows; ++r) sum += matrix[r * width + k];
  sums[k] = sum;
}

/// One thread per row: 1 where the label has the highest score, else 0.
template <class T>
__global__ void mark_right(const T* scores, const int* labels, int rows, int width, int* right) {
  const int r = this_thread();
  if (r >= rows) return;
  const T* const row = scores + r * width;
  int best = 0;
  for (int k = 1; k < width; ++k) best = row[k] > row[best] ? k : best;
  right[r] = best == labels[r] ? 1 : 0;
}

}  // namespace digits
