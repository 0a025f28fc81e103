// SPDX-License-Identifier: MIT
// Grid sizes, and the types that the kernels are compiled for; see launch.h.
#include "device.h"
#include "kernels.cuh"
#include "launch.h"

namespace digits::launch {
namespace {

constexpr unsigned kBlock = 128;

unsigned blocks_for(int threads) { return (static_cast<unsigned>(threads) + kBlock - 1) / kBlock; }

void check_launch(const char* kernel) { check(cudaGetLastError(), kernel); }

}  // namespace

template <class In>
void gather_rows(const In* table, const int* table_labels, const std::size_t* indices, int rows,
                 int width, In* to, int* labels, cudaStream_t stream) {
  digits::gather_rows<<<blocks_for(rows * width), kBlock, 0, stream>>>(table, table_labels, indices,
                                                                       rows, width, to, labels);
  check_launch("gather_rows");
}

void round_to_bf16(const float* from, int n, __nv_bfloat16* to, cudaStream_t stream) {
  digits::round_to_bf16<<<blocks_for(n), kBlock, 0, stream>>>(from, n, to);
  check_launch("round_to_bf16");
}

template <class T>
void add_bias(T* matrix, const T* bias, int rows, int width, cudaStream_t stream) {
  digits::add_bias<<<blocks_for(rows * width), kBlock, 0, stream>>>(matrix, bias, rows, width);
  check_launch("add_bias");
}

template <class T>
void add_bias_relu(T* matrix, const T* bias, int rows, int width, cudaStream_t stream) {
  digits::add_bias_relu<<<blocks_for(rows * width), kBlock, 0, stream>>>(matrix, bias, rows, width);
  check_launch("add_bias_relu");
}

template <class T>
void relu_backward(const T* activations, T* grads, int n, cudaStream_t stream) {
  digits::relu_backward<<<blocks_for(n), kBlock, 0, stream>>>(activations, grads, n);
  check_launch("relu_backward");
}

template <class T>
void softmax_loss(T* scores, const int* labels, int rows, int width, T* row_losses, T* loss_sum,
                  cudaStream_t stream) {
  digits::softmax_loss<<<blocks_for(rows), kBlock, 0, stream>>>(scores, labels, rows, width,
                                                                row_losses);
  check_launch("softmax_loss");
  digits::add_mean<<<1, 1, 0, stream>>>(row_losses, rows, loss_sum);
  check_launch("add_mean");
}

template <class T>
void sum_rows(const T* matrix, int rows, int width, T* sums, cudaStream_t stream) {
  digits::sum_rows<<<blocks_for(width), kBlock, 0, stream>>>(matrix, rows, width, sums);
  check_launch("sum_rows");
}

template <class T>
void mark_right(const T* scores, const int* labels, int rows, int width, int* right,
                cudaStream_t stream) {
  digits::mark_right<<<blocks_for(rows), kBlock, 0, stream>>>(scores, labels, rows, width, right);
  check_launch("mark_right");
}

template void gather_rows(const float*, const int*, const std::size_t*, int, int, float*, int*,
                          cudaStream_t);
template void gather_rows(const double*, const int*, const std::size_t*, int, int, double*, int*,
                          cudaStream_t);
template void gather_rows(const __nv_bfloat16*, const int*, const std::size_t*, int, int,
                          __nv_bfloat16*, int*, cudaStream_t);
template void add_bias(float*, const float*, int, int, cudaStream_t);
template void add_bias(double*, const double*, int, int, cudaStream_t);
template void add_bias_relu(float*, const float*, int, int, cudaStream_t);
template void add_bias_relu(double*, const double*, int, int, cudaStream_t);
template void relu_backward(const float*, float*, int, cudaStream_t);
template void relu_backward(const double*, double*, int, cudaStream_t);
template void softmax_loss(float*, const int*, int, int, float*, float*, cudaStream_t);
template void softmax_loss(double*, const int*, int, int, double*, double*, cudaStream_t);
template void sum_rows(const float*, int, int, float*, cudaStream_t);
template void sum_rows(const double*, int, int, double*, cudaStream_t);
template void mark_right(const float*, const int*, int, int, int*, cudaStream_t);
template void mark_right(const double*, const int*, int, int, int*, cudaStream_t);

}  // namespace digits::launch
