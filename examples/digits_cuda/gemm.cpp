// SPDX-License-Identifier: MIT
// Row-major products through a column-major library; see gemm.h.
#include "gemm.h"

#include <stdexcept>
#include <string>

namespace digits {
namespace {

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string("[train_cuda] ") + what + ": " +
                             cublasGetStatusString(status));
}

struct Types {
  cudaDataType in;
  cudaDataType out;
  cublasComputeType_t compute;
};

// What cuBLAS, column by column, takes for the transpose of c is b' * a', in the same memory.
template <class T, class In>
void transposed_product(cublasHandle_t handle, const Types& types, const Factor<In>& a,
                        const Factor<In>& b, int m, int n, int k, T* c) {
  const T one = 1;
  const T zero = 0;
  check(cublasGemmEx(handle, b.op, a.op, n, m, k, &one, b.data, types.in, b.row_length, a.data,
                     types.in, a.row_length, &zero, c, types.out, n, types.compute,
                     CUBLAS_GEMM_DEFAULT),
        "cublasGemmEx");
}

}  // namespace

Gemm::Gemm(cudaStream_t stream) {
  check(cublasCreate(&handle_), "cublasCreate");
  check(cublasSetStream(handle_, stream), "cublasSetStream");
}

Gemm::~Gemm() { cublasDestroy(handle_); }

void Gemm::multiply(Factor<float> a, Factor<float> b, int m, int n, int k, float* c) {
  transposed_product(handle_, {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F}, a, b, m, n, k, c);
}

void Gemm::multiply(Factor<double> a, Factor<double> b, int m, int n, int k, double* c) {
  transposed_product(handle_, {CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F}, a, b, m, n, k, c);
}

void Gemm::multiply(Factor<__nv_bfloat16> a, Factor<__nv_bfloat16> b, int m, int n, int k,
                    float* c) {
  transposed_product(handle_, {CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F}, a, b, m, n, k, c);
}

}  // namespace digits
