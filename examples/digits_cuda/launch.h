// SPDX-License-Identifier: MIT
// Starts the kernels of kernels.cuh on a stream, for code that nvcc does not compile. T is float or
// double, In what matrix products read: T, or __nv_bfloat16.
#pragma once

#include <cstddef>

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

namespace digits::launch {

template <class In>
void gather_rows(const In* table, const int* table_labels, const std::size_t* indices, int rows,
                 int width, In* to, int* labels, cudaStream_t stream);
void round_to_bf16(const float* from, int n, __nv_bfloat16* to, cudaStream_t stream);
template <class T>
void add_bias(T* matrix, const T* bias, int rows, int width, cudaStream_t stream);
template <class T>
void add_bias_relu(T* matrix, const T* bias, int rows, int width, cudaStream_t stream);
template <class T>
void relu_backward(const T* activations, T* grads, int n, cudaStream_t stream);
/// Adds the mean loss to *loss_sum; row_losses is scratch for `rows` numbers.
template <class T>
void softmax_loss(T* scores, const int* labels, int rows, int width, T* row_losses, T* loss_sum,
                  cudaStream_t stream);
template <class T>
void sum_rows(const T* matrix, int rows, int width, T* sums, cudaStream_t stream);
template <class T>
void mark_right(const T* scores, const int* labels, int rows, int width, int* right,
                cudaStream_t stream);

}  // namespace digits::launch
