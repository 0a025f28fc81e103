// SPDX-License-Identifier: MIT
// The fake CUDA runtime: kernels that are written as for a GPU.
#include <doctest/doctest.h>

#include "doubles/cuda_on_cpu.h"
#include "unit/doubles/device.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

struct Line {
  float* values;
  float slope;
  int count;
};

__global__ void add_line(Line line, double scale) {
  const int stride = static_cast<int>(blockDim.x * gridDim.x);
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < line.count; i += stride)
    line.values[i] += static_cast<float>(line.slope * scale * i);
}

__global__ void sum(const float* __restrict__ values, float* __restrict__ total, int count) {
  __shared__ float partial[256];
  float mine = 0;
  for (unsigned i = threadIdx.x; i < static_cast<unsigned>(count); i += blockDim.x)
    mine += values[i];
  partial[threadIdx.x] = mine;
  __syncthreads();
  if (threadIdx.x != 0) return;
  *total = 0;
  for (unsigned i = 0; i < blockDim.x; ++i) *total += partial[i];
}

__global__ void number(int* values) {
  values[blockIdx.x * blockDim.x + threadIdx.x] = static_cast<int>(blockIdx.x * 10 + threadIdx.x);
}

__global__ void count_threads(int* total) { atomicAdd(total, 1); }

const cuda_on_cpu::Kernels kernels = {{"add_line", add_line},
                                      {"sum", sum},
                                      {"number", number, cuda_on_cpu::kEveryThread},
                                      {"example::count<float>", count_threads}};

CudaKernel find_kernel(const char* name) {
  CudaLibrary library = nullptr;
  CudaKernel kernel = nullptr;
  ok(cudaLibraryLoadData(&library, "code", nullptr, nullptr, 0, nullptr, nullptr, 0));
  ok(cudaLibraryGetKernel(&kernel, library, name));
  return kernel;
}

template <class... Arguments>
CudaError launch(const char* name, CudaDim3 grid, CudaDim3 block, CudaStream stream,
                 Arguments... arguments) {
  void* list[] = {&arguments...};
  return cudaLaunchKernel(find_kernel(name), grid, block, list, 0, stream);
}

}  // namespace

TEST_SUITE("doubles") {
  TEST_CASE("fake kernel: runs over its grid, with pointers in arguments and in structs") {
    const CudaStream stream = make_stream();
    float* const values = device_copy(std::vector<float>(10, 1.0F));
    float* const total = device_array<float>(1);
    CHECK(launch("add_line", {4}, {2}, stream, Line{values, 2, 10}, 0.5) == kCudaSuccess);
    CHECK(launch("sum", {1}, {256}, stream, static_cast<const float*>(values), total, 10) ==
          kCudaSuccess);
    CHECK(host_copy(values, 10, stream)[9] == 10.0F);
    CHECK(host_copy(total, 1, stream)[0] == 55.0F);
  }

  TEST_CASE("fake kernel: runs every thread when it is said to need them") {
    const CudaStream stream = make_stream();
    int* const values = device_array<int>(6);
    CHECK(launch("number", {2}, {3}, stream, values) == kCudaSuccess);
    CHECK(host_copy(values, 6, stream) == std::vector<int>{0, 1, 2, 10, 11, 12});
  }

  TEST_CASE("fake kernel: is found by its mangled name, as nvcc registers it") {
    const CudaStream stream = make_stream();
    int* const total = device_copy(std::vector<int>{0});
    static char host_function;
    __cudaRegisterFunction(nullptr, &host_function, nullptr, "_ZN7example5countIfEEvPT_", -1,
                           nullptr, nullptr, nullptr, nullptr, nullptr);
    CudaKernel kernel = nullptr;
    ok(__cudaGetKernel(&kernel, &host_function));
    __cudaPushCallConfiguration({3}, {32}, 0, stream);
    CudaDim3 grid, block;
    std::size_t shared_bytes = 1;
    CudaStream on = nullptr;
    ok(__cudaPopCallConfiguration(&grid, &block, &shared_bytes, &on));
    int* argument = total;
    void* arguments[] = {&argument};
    CHECK(__cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, on) == kCudaSuccess);
    CHECK(cudaLaunchKernel(&host_function, {4}, {1}, arguments, 0, stream) == kCudaSuccess);
    CHECK(host_copy(total, 1, stream)[0] == 7);
  }

  TEST_CASE("fake kernel: unknown names and impossible launches are refused") {
    const CudaStream stream = make_stream();
    int* const total = device_array<int>(1);
    CudaLibrary library = nullptr;
    CudaKernel kernel = nullptr;
    ok(cudaLibraryLoadData(&library, "code", nullptr, nullptr, 0, nullptr, nullptr, 0));
    CHECK(cudaLibraryGetKernel(&kernel, library, "nobody") == 500);
    std::byte attributes[256];
    int blocks = 0;
    CHECK(cudaFuncGetAttributes(attributes, nullptr) == 98);
    CHECK(cudaFuncGetAttributes(attributes, find_kernel("number")) == kCudaSuccess);
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, find_kernel("number"), 256, 0) ==
          kCudaSuccess);
    CHECK(blocks == 4);
    CHECK(launch("number", {0}, {1}, stream, total) == 9);
    CHECK(launch("number", {1}, {1025}, stream, total) == 9);
    ok(cudaSetDevice(1));
    CHECK(launch("number", {1}, {1}, stream, total) == 400);
    ok(cudaSetDevice(0));
  }

  TEST_CASE("fake kernel: memory of another device breaks the device") {
    ok(cudaSetDevice(3));
    int* const other = device_array<int>(1);
    ok(cudaSetDevice(4));
    const CudaStream stream = make_stream();
    CHECK(launch("number", {1}, {1}, stream, other) == kCudaSuccess);
    CHECK(cudaStreamSynchronize(stream) == 700);
  }
}
