// SPDX-License-Identifier: MIT
// Matrix products by cuBLAS, for row-major matrices.
#pragma once

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

namespace digits {

/// A matrix as it lies in memory, and how a product takes it: CUBLAS_OP_N as it is, CUBLAS_OP_T
/// transposed.
template <class In>
struct Factor {
  cublasOperation_t op;
  const In* data;
  int row_length;
};

/// cuBLAS on one stream. Throws: std::runtime_error.
class Gemm {
 public:
  explicit Gemm(cudaStream_t stream);
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;
  ~Gemm();

  /// c = op(a) * op(b), where op(a) is m x k and op(b) k x n. Products are summed in c's type, also
  /// those of bf16.
  void multiply(Factor<float> a, Factor<float> b, int m, int n, int k, float* c);
  void multiply(Factor<double> a, Factor<double> b, int m, int n, int k, double* c);
  void multiply(Factor<__nv_bfloat16> a, Factor<__nv_bfloat16> b, int m, int n, int k, float* c);

 private:
  cublasHandle_t handle_ = nullptr;
};

}  // namespace digits
