// SPDX-License-Identifier: MIT
// The cuBLAS double: its products against the definition, element by element, and what it refuses.
#include <cmath>
#include <cstddef>
#include <vector>

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

namespace {

// Small whole numbers: exact in every type, so that products are too.
double element(int row, int column, int salt) { return (row * 5 + column * 3 + salt) % 11 - 5; }

template <class T>
class OnDevice {
 public:
  OnDevice(std::vector<T> values, cudaStream_t stream)
      : values_(std::move(values)), stream_(stream) {
    void* memory = nullptr;
    CHECK(cudaMalloc(&memory, values_.size() * sizeof(T)) == cudaSuccess);
    data = static_cast<T*>(memory);
    CHECK(cudaMemcpyAsync(data, values_.data(), values_.size() * sizeof(T), cudaMemcpyHostToDevice,
                          stream) == cudaSuccess);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(data); }
  std::vector<T> read() {
    cudaMemcpyAsync(values_.data(), data, values_.size() * sizeof(T), cudaMemcpyDeviceToHost,
                    stream_);
    cudaStreamSynchronize(stream_);
    return values_;
  }

  T* data = nullptr;

 private:
  std::vector<T> values_;
  cudaStream_t stream_;
};

class Blas {
 public:
  Blas() {
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cublasCreate(&handle);
    cublasSetStream(handle, stream);
  }
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;
  ~Blas() {
    cudaStreamSynchronize(stream);
    cublasDestroy(handle);
    cudaStreamDestroy(stream);
  }
  cudaStream_t stream = nullptr;
  cublasHandle_t handle = nullptr;
};

// Column-major, with a gap of `gap` elements under each column.
template <class T>
std::vector<T> matrix(int rows, int columns, int gap, int salt) {
  std::vector<T> values;
  for (int column = 0; column < columns; ++column)
    for (int row = 0; row < rows + gap; ++row)
      values.push_back(static_cast<T>(static_cast<float>(element(row, column, salt))));
  return values;
}

struct Types {
  cudaDataType in, out;
  cublasComputeType_t compute;
};

template <class In, class T>
void check_product(const Types& types, cublasOperation_t op_a, cublasOperation_t op_b, T beta) {
  constexpr int m = 5, n = 3, k = 4, gap = 2;
  const bool ta = op_a == CUBLAS_OP_T;
  const bool tb = op_b == CUBLAS_OP_T;
  const Blas blas;
  OnDevice a(matrix<In>(ta ? k : m, ta ? m : k, gap, 1), blas.stream);
  OnDevice b(matrix<In>(tb ? n : k, tb ? k : n, gap, 2), blas.stream);
  OnDevice c(matrix<T>(m, n, gap, 3), blas.stream);
  const T alpha = 2;
  REQUIRE(cublasGemmEx(blas.handle, op_a, op_b, m, n, k, &alpha, a.data, types.in,
                       (ta ? k : m) + gap, b.data, types.in, (tb ? n : k) + gap, &beta, c.data,
                       types.out, m + gap, types.compute,
                       CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS);
  const std::vector<T> result = c.read();
  for (int column = 0; column < n; ++column)
    for (int row = 0; row < m + gap; ++row) {
      double expected = element(row, column, 3);
      if (row < m) {  // below is the gap, which stays
        expected *= static_cast<double>(beta);
        for (int i = 0; i < k; ++i)
          expected += 2 * (ta ? element(i, row, 1) : element(row, i, 1)) *
                      (tb ? element(column, i, 2) : element(i, column, 2));
      }
      CHECK(static_cast<double>(result[static_cast<std::size_t>(row + column * (m + gap))]) ==
            expected);
    }
}

}  // namespace

TEST_SUITE("doubles") {
  TEST_CASE("fake cuBLAS: products are those of the definition, in every type and transposition") {
    for (const auto op_a : {CUBLAS_OP_N, CUBLAS_OP_T})
      for (const auto op_b : {CUBLAS_OP_N, CUBLAS_OP_T}) {
        CAPTURE(static_cast<int>(op_a));
        CAPTURE(static_cast<int>(op_b));
        check_product<float, float>({CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F}, op_a, op_b, 1.0F);
        check_product<double, double>({CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F}, op_a, op_b,
                                      -1.0);
        check_product<__nv_bfloat16, float>({CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F}, op_a,
                                            op_b, 0.0F);
      }
  }

  TEST_CASE("fake cuBLAS: with beta 0 what was in C does not matter, not even NaN") {
    const Blas blas;
    OnDevice<float> a({3}, blas.stream), c({NAN}, blas.stream);
    const float one = 1, zero = 0;
    CHECK(cublasGemmEx(blas.handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, a.data, CUDA_R_32F, 1,
                       a.data, CUDA_R_32F, 1, &zero, c.data, CUDA_R_32F, 1, CUBLAS_COMPUTE_32F,
                       CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS);
    CHECK(c.read() == std::vector<float>{9});
  }

  TEST_CASE("fake cuBLAS: a matrix past its allocation or in CPU memory is refused") {
    const Blas blas;
    OnDevice<float> four({1, 2, 3, 4}, blas.stream);
    std::vector<float> host(4);
    const float one = 1, zero = 0;
    const auto square = [&](const float* a, int size, int leading, float* c) {
      return cublasGemmEx(blas.handle, CUBLAS_OP_N, CUBLAS_OP_N, size, size, size, &one, a,
                          CUDA_R_32F, leading, four.data, CUDA_R_32F, 2, &zero, c, CUDA_R_32F, 2,
                          CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    };
    OnDevice<float> out({0, 0, 0, 0}, blas.stream);
    CHECK(square(four.data, 2, 2, out.data) == CUBLAS_STATUS_SUCCESS);
    CHECK(square(four.data, 2, 3, out.data) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(square(four.data + 1, 2, 2, out.data) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(square(four.data, 2, 1, out.data) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(square(host.data(), 2, 2, out.data) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(square(four.data, 2, 2, host.data()) == CUBLAS_STATUS_INVALID_VALUE);
  }
}
