// SPDX-License-Identifier: MIT
// The tables of CUDA functions against the real header: a difference does not compile.
#include "unit/cuda/abi.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include "cuda/cuda_api.h"

using namespace ddprun;

#define DDPRUN_SAME(name) \
  static_assert(test::SameAbi<decltype(CudaApi::name), decltype(&::name)>::value, #name);
DDPRUN_CUDA_FUNCTIONS(DDPRUN_SAME)
DDPRUN_SAME(cuCtxGetCurrent)
DDPRUN_SAME(cuCtxSetCurrent)

static_assert(sizeof(CudaDim3) == sizeof(dim3) && offsetof(CudaDim3, z) == offsetof(dim3, z));
// The comparison itself: another count, another kind.
static_assert(!test::SameAbi<decltype(CudaApi::cudaFree), decltype(&::cudaMalloc)>::value);
static_assert(!test::SameAbi<decltype(CudaApi::cudaFree), decltype(&::cudaSetDevice)>::value);

TEST_SUITE("cuda") {
  TEST_CASE("CUDA table: its constants are those of the header") {
    CHECK(kCudaSuccess == cudaSuccess);
    CHECK(kCudaErrorMemoryAllocation == cudaErrorMemoryAllocation);
    CHECK(kCudaErrorInsufficientDriver == cudaErrorInsufficientDriver);
    CHECK(kCudaErrorNoDevice == cudaErrorNoDevice);
    CHECK(kCudaErrorInvalidResourceHandle == cudaErrorInvalidResourceHandle);
    CHECK(kCudaErrorNotReady == cudaErrorNotReady);
    CHECK(kCudaStreamNonBlocking == cudaStreamNonBlocking);
    CHECK(kCudaEventDisableTiming == cudaEventDisableTiming);
    CHECK(kCudaMemcpyDefault == cudaMemcpyDefault);
    CHECK(kCudaCaptureModeThreadLocal == cudaStreamCaptureModeThreadLocal);
    CHECK(kCudaAttributeMultiProcessorCount == cudaDevAttrMultiProcessorCount);
    CHECK(kCudaAttributeCapabilityMajor == cudaDevAttrComputeCapabilityMajor);
    CHECK(kCudaAttributeCapabilityMinor == cudaDevAttrComputeCapabilityMinor);
  }
}
