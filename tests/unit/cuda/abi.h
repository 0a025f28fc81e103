// SPDX-License-Identifier: MIT
// Whether two functions can be called in each other's place: parameter for parameter the same size
// and kind. And the names in the tables of CUDA and NCCL functions.
#pragma once

#include <type_traits>

namespace ddprun::test {

template <class A, class B>
constexpr bool kSameKind =
    sizeof(A) == sizeof(B) && alignof(A) == alignof(B) &&
    std::is_pointer_v<A> == std::is_pointer_v<B>&& std::is_class_v<A> == std::is_class_v<B> &&
    (std::is_integral_v<A> || std::is_enum_v<A>) == (std::is_integral_v<B> || std::is_enum_v<B>);

template <class A, class B>
struct SameAbi : std::false_type {};
template <class Ra, class... A, class Rb, class... B>
requires(sizeof...(A) == sizeof...(B)) struct SameAbi<Ra (*)(A...), Rb (*)(B...)>
    : std::bool_constant<kSameKind<Ra, Rb> && (kSameKind<A, B> && ...)> {
};

}  // namespace ddprun::test

#define DDPRUN_CUDA_FUNCTIONS(check)                                                              \
  check(cudaRuntimeGetVersion) check(cudaDriverGetVersion) check(cudaGetDeviceCount)              \
      check(cudaSetDevice) check(cudaGetDevice) check(cudaDeviceGetAttribute)                     \
          check(cudaDeviceGetPCIBusId) check(cudaPeekAtLastError) check(cudaGetLastError)         \
              check(cudaGetErrorName) check(cudaGetErrorString) check(cudaMalloc) check(cudaFree) \
                  check(cudaMemcpyAsync) check(cudaMemsetAsync)                                   \
                      check(cudaDeviceGetStreamPriorityRange) check(cudaStreamCreateWithPriority) \
                          check(cudaStreamDestroy) check(cudaStreamIsCapturing)                   \
                              check(cudaStreamQuery) check(cudaStreamWaitEvent)                   \
                                  check(cudaEventCreateWithFlags) check(cudaEventDestroy)         \
                                      check(cudaEventRecord) check(cudaEventQuery)                \
                                          check(cudaThreadExchangeStreamCaptureMode)              \
                                              check(cudaLibraryLoadData)                          \
                                                  check(cudaLibraryGetKernel)                     \
                                                      check(cudaLaunchKernel)

#define DDPRUN_NCCL_FUNCTIONS(check)                                                            \
  check(ncclGetVersion) check(ncclGetUniqueId) check(ncclCommInitRankConfig)                    \
      check(ncclCommFinalize) check(ncclCommDestroy) check(ncclCommAbort)                       \
          check(ncclCommGetAsyncError) check(ncclAllReduce) check(ncclBroadcast)                \
              check(ncclRedOpCreatePreMulSum) check(ncclRedOpDestroy) check(ncclGetErrorString) \
                  check(ncclGetLastError)
