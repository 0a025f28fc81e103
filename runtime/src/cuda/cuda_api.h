// SPDX-License-Identifier: MIT
// The part of the CUDA runtime that ddprun uses, as a table of functions found in libcudart when a
// process first needs a GPU. No CUDA header is included and nothing is linked: one binary runs
// with CUDA, without it, and with a test double. Only calls whose signature is the same in CUDA 12
// and 13 are here. https://docs.nvidia.com/cuda/cuda-runtime-api
#pragma once

#include <cstddef>
#include <string>

namespace ddprun {

using CudaError = int;  // cudaError_t
using CudaStream = void*;
using CudaEvent = void*;
using CudaLibrary = void*;
using CudaKernel = void*;
using CudaContext = void*;  // CUcontext
struct CudaDim3 {
  unsigned x = 1, y = 1, z = 1;
};

inline constexpr CudaError kCudaSuccess = 0;
inline constexpr CudaError kCudaErrorMemoryAllocation = 2;
inline constexpr CudaError kCudaErrorInsufficientDriver = 35;
inline constexpr CudaError kCudaErrorNoDevice = 100;
inline constexpr CudaError kCudaErrorInvalidResourceHandle = 400;
inline constexpr CudaError kCudaErrorNotReady = 600;
inline constexpr unsigned kCudaStreamNonBlocking = 1;
inline constexpr unsigned kCudaEventDisableTiming = 2;
inline constexpr int kCudaMemcpyDefault = 4;           // the kind follows from the addresses
inline constexpr int kCudaCaptureModeThreadLocal = 1;  // cudaStreamCaptureModeThreadLocal
inline constexpr int kCudaAttributeMultiProcessorCount = 16;
inline constexpr int kCudaAttributeCapabilityMajor = 75;
inline constexpr int kCudaAttributeCapabilityMinor = 76;

/// Members have the names of the functions. Null: not in this libcudart, and not required.
struct CudaApi {
  // About the machine. Output is untouched on errors: never read it then.
  CudaError (*cudaRuntimeGetVersion)(int*) = nullptr;
  CudaError (*cudaDriverGetVersion)(int*) = nullptr;  // 0: there is no driver
  CudaError (*cudaGetDeviceCount)(int*) = nullptr;
  CudaError (*cudaSetDevice)(int) = nullptr;
  CudaError (*cudaGetDevice)(int*) = nullptr;
  CudaError (*cudaDeviceGetAttribute)(int*, int attribute, int device) = nullptr;
  CudaError (*cudaDeviceGetPCIBusId)(char*, int bytes, int device) = nullptr;
  CudaError (*cudaPeekAtLastError)() = nullptr;
  CudaError (*cudaGetLastError)() = nullptr;
  const char* (*cudaGetErrorName)(CudaError) = nullptr;
  const char* (*cudaGetErrorString)(CudaError) = nullptr;
  // Of the driver, libcuda: what the runtime does not tell without making a context.
  CudaError (*cuCtxGetCurrent)(CudaContext*) = nullptr;  // null: the thread has none
  CudaError (*cuCtxSetCurrent)(CudaContext) = nullptr;
  // Memory.
  CudaError (*cudaMalloc)(void**, std::size_t) = nullptr;
  CudaError (*cudaFree)(void*) = nullptr;
  CudaError (*cudaMemcpyAsync)(void*, const void*, std::size_t, int kind, CudaStream) = nullptr;
  CudaError (*cudaMemsetAsync)(void*, int, std::size_t, CudaStream) = nullptr;
  // Streams and events.
  CudaError (*cudaDeviceGetStreamPriorityRange)(int* least, int* greatest) = nullptr;
  CudaError (*cudaStreamCreateWithPriority)(CudaStream*, unsigned flags, int priority) = nullptr;
  CudaError (*cudaStreamDestroy)(CudaStream) = nullptr;
  CudaError (*cudaStreamQuery)(CudaStream) = nullptr;
  CudaError (*cudaStreamIsCapturing)(CudaStream, int* status) = nullptr;  // 0: it is not
  CudaError (*cudaStreamWaitEvent)(CudaStream, CudaEvent, unsigned flags) = nullptr;
  CudaError (*cudaEventCreateWithFlags)(CudaEvent*, unsigned flags) = nullptr;
  CudaError (*cudaEventDestroy)(CudaEvent) = nullptr;
  CudaError (*cudaEventRecord)(CudaEvent, CudaStream) = nullptr;
  CudaError (*cudaEventQuery)(CudaEvent) = nullptr;
  CudaError (*cudaThreadExchangeStreamCaptureMode)(int* mode) = nullptr;
  // Kernels as data; in CUDA 12.8 and later, else null.
  CudaError (*cudaLibraryLoadData)(CudaLibrary*, const void* code, int* jit_options,
                                   void** jit_values, unsigned jit_count, int* library_options,
                                   void** library_values, unsigned library_count) = nullptr;
  CudaError (*cudaLibraryGetKernel)(CudaKernel*, CudaLibrary, const char* name) = nullptr;
  CudaError (*cudaLaunchKernel)(const void* kernel, CudaDim3 grid, CudaDim3 block, void** arguments,
                                std::size_t shared_bytes, CudaStream) = nullptr;

  std::string path;          // of the library that was loaded
  bool test_double = false;  // not CUDA: one of this project's tests
};

/// The table of this process, loaded at the first call: DDPRUN_CUDART_LIB if it is set, else a copy
/// that is loaded already, else what the loader finds as libcudart.so.13, .12, then where Python
/// wheels put it; of these the first that the driver and this program can use.
/// Threads: any. Throws: DeviceError, the same at every call, that says what was tried and why it
/// was refused: not found, too old, newer than the driver, no driver, a test double where none is
/// allowed.
const CudaApi& cuda_api();
/// Why cuda_api() throws, in one line without a tag; empty when it does not.
const std::string& why_no_cuda();

/// Throws: DeviceError "[cuda] `what`: name (code): text" unless `error` is success. An error that
/// the library keeps is taken from it, so that no later call reports it again.
void require_cuda(const CudaApi& api, CudaError error, const char* what);

/// "13.0" for 13000
std::string cuda_version_text(int version);

}  // namespace ddprun
