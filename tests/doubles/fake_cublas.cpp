// SPDX-License-Identifier: MIT
// A TEST DOUBLE for the part of cuBLAS that examples/digits_cuda calls: a product is computed on
// the CPU, in the order of the handle's stream, by the textbook's three loops. Matrices are
// column-major as cuBLAS's are. Stricter than cuBLAS: it refuses matrices that are not in device
// memory or run past their allocation, and types that the example does not use.
// https://docs.nvidia.com/cuda/cublas
#include <cstddef>
#include <cstdio>
#include <utility>

#include <cublas_v2.h>
#include <cuda_bf16.h>

// Of fake_cudart.h, which cannot stand beside CUDA's own headers.
extern "C" void* double_cuda_bytes(const void* pointer);
extern "C" std::size_t double_cuda_room(const void* pointer);
extern "C" int double_cuda_device_of(const void* pointer);

struct cublasContext {
  cudaStream_t stream = nullptr;
};

namespace {

// Element (row, column) of op(matrix).
struct Matrix {
  const void* data;
  cudaDataType type;
  int leading;
  bool transposed;

  template <class T>
  T at(const T* elements, int row, int column) const {
    if (transposed) std::swap(row, column);
    return elements[row + static_cast<std::ptrdiff_t>(column) * leading];
  }
};

struct Product {
  Matrix a, b, c;
  int m, n, k;
  double alpha, beta;
};

std::size_t size_of(cudaDataType type) {
  return type == CUDA_R_64F ? sizeof(double) : type == CUDA_R_32F ? sizeof(float) : 2;
}

// In is what a and b have, T what c has and sums are kept in.
template <class In, class T>
void multiply(const Product& p) {
  const auto* const a = static_cast<const In*>(double_cuda_bytes(p.a.data));
  const auto* const b = static_cast<const In*>(double_cuda_bytes(p.b.data));
  auto* const c = static_cast<T*>(double_cuda_bytes(p.c.data));
  for (int column = 0; column < p.n; ++column)
    for (int row = 0; row < p.m; ++row) {
      T sum = 0;
      for (int i = 0; i < p.k; ++i)
        sum += static_cast<T>(p.a.at(a, row, i)) * static_cast<T>(p.b.at(b, i, column));
      T& out = c[row + static_cast<std::ptrdiff_t>(column) * p.c.leading];
      const T old = p.beta == 0 ? T(0) : static_cast<T>(p.beta) * out;  // NaN there does not count
      out = static_cast<T>(p.alpha) * sum + old;
    }
}

void run(void* argument) {
  const auto* const p = static_cast<const Product*>(argument);
  if (p->a.type == CUDA_R_64F)
    multiply<double, double>(*p);
  else if (p->a.type == CUDA_R_32F)
    multiply<float, float>(*p);
  else
    multiply<__nv_bfloat16, float>(*p);
  delete p;
}

// Whether op(matrix), rows x columns, lies in one allocation of device memory.
bool fits(const char* name, const Matrix& matrix, int rows, int columns) {
  if (matrix.transposed) std::swap(rows, columns);
  if (rows == 0 || columns == 0) return true;
  const auto elements =
      static_cast<std::size_t>(columns - 1) * static_cast<std::size_t>(matrix.leading) +
      static_cast<std::size_t>(rows);
  if (matrix.leading >= rows && double_cuda_device_of(matrix.data) >= 0 &&
      elements * size_of(matrix.type) <= double_cuda_room(matrix.data))
    return true;
  std::fprintf(
      stderr,
      "[fake cublas] cublasGemmEx: %s, %d x %d with leading dimension %d, is not in device "
      "memory or runs past its allocation\n",
      name, rows, columns, matrix.leading);
  return false;
}

bool types_supported(cudaDataType in, cudaDataType b, cudaDataType out,
                     cublasComputeType_t compute) {
  if (in != b) return false;
  if (in == CUDA_R_64F) return out == CUDA_R_64F && compute == CUBLAS_COMPUTE_64F;
  return (in == CUDA_R_32F || in == CUDA_R_16BF) && out == CUDA_R_32F &&
         compute == CUBLAS_COMPUTE_32F;
}

double scalar(const void* value, cublasComputeType_t compute) {
  return compute == CUBLAS_COMPUTE_64F ? *static_cast<const double*>(value)
                                       : *static_cast<const float*>(value);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

extern const int ddprun_test_double = 1;

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "another error";
  }
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                            int m, int n, int k, const void* alpha, const void* a,
                            cudaDataType a_type, int lda, const void* b, cudaDataType b_type,
                            int ldb, const void* beta, void* c, cudaDataType c_type, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t) {
  if (!types_supported(a_type, b_type, c_type, compute)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (m < 0 || n < 0 || k < 0) return CUBLAS_STATUS_INVALID_VALUE;
  const Product product{{a, a_type, lda, op_a != CUBLAS_OP_N},
                        {b, b_type, ldb, op_b != CUBLAS_OP_N},
                        {c, c_type, ldc, false},
                        m,
                        n,
                        k,
                        scalar(alpha, compute),
                        scalar(beta, compute)};
  if (!fits("A", product.a, m, k) || !fits("B", product.b, k, n) || !fits("C", product.c, m, n))
    return CUBLAS_STATUS_INVALID_VALUE;
  const cudaError_t launched = cudaLaunchHostFunc(handle->stream, run, new Product(product));
  return launched == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
#pragma GCC visibility pop
