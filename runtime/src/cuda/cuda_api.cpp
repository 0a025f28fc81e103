// SPDX-License-Identifier: MIT
// Fills the table of the CUDA runtime; see cuda_api.h.
#include "cuda/cuda_api.h"

#include <ddprun/error.h>

#include <type_traits>
#include <vector>

#include <dlfcn.h>
#include <fmt/core.h>
#include <fmt/format.h>

#include "cuda/shared_library.h"

namespace ddprun {
namespace {

constexpr int kRuntimeFloor = 12000;  // of the calls and their signatures

const LibrarySearch& where_to_look() {
  static const LibrarySearch search = {
      "DDPRUN_CUDART_LIB",
      {"libcudart.so.13", "libcudart.so.12"},
      {"nvidia/cu13/lib/libcudart.so.13", "nvidia/cuda_runtime/lib/libcudart.so.12"}};
  return search;
}

void find_functions(const SharedLibrary& library, CudaApi& api) {
  std::vector<std::string> missing;
  const auto require = [&](const char* name, auto& slot) { library.find(name, slot, missing); };
  require("cudaDriverGetVersion", api.cudaDriverGetVersion);
  require("cudaGetDeviceCount", api.cudaGetDeviceCount);
  require("cudaSetDevice", api.cudaSetDevice);
  require("cudaGetDevice", api.cudaGetDevice);
  require("cudaDeviceGetAttribute", api.cudaDeviceGetAttribute);
  require("cudaDeviceGetPCIBusId", api.cudaDeviceGetPCIBusId);
  require("cudaPeekAtLastError", api.cudaPeekAtLastError);
  require("cudaGetLastError", api.cudaGetLastError);
  require("cudaGetErrorName", api.cudaGetErrorName);
  require("cudaGetErrorString", api.cudaGetErrorString);
  require("cudaMalloc", api.cudaMalloc);
  require("cudaFree", api.cudaFree);
  require("cudaMemcpyAsync", api.cudaMemcpyAsync);
  require("cudaMemsetAsync", api.cudaMemsetAsync);
  require("cudaDeviceGetStreamPriorityRange", api.cudaDeviceGetStreamPriorityRange);
  require("cudaStreamCreateWithPriority", api.cudaStreamCreateWithPriority);
  require("cudaStreamDestroy", api.cudaStreamDestroy);
  require("cudaStreamQuery", api.cudaStreamQuery);
  require("cudaStreamIsCapturing", api.cudaStreamIsCapturing);
  require("cudaStreamWaitEvent", api.cudaStreamWaitEvent);
  require("cudaEventCreateWithFlags", api.cudaEventCreateWithFlags);
  require("cudaEventDestroy", api.cudaEventDestroy);
  require("cudaEventRecord", api.cudaEventRecord);
  require("cudaEventQuery", api.cudaEventQuery);
  require("cudaThreadExchangeStreamCaptureMode", api.cudaThreadExchangeStreamCaptureMode);
  require("cudaLaunchKernel", api.cudaLaunchKernel);
  library.find("cudaLibraryLoadData", api.cudaLibraryLoadData);
  library.find("cudaLibraryGetKernel", api.cudaLibraryGetKernel);
  library.find("cudaFuncGetAttributes", api.cudaFuncGetAttributes);
  library.find("cudaOccupancyMaxActiveBlocksPerMultiprocessor",
               api.cudaOccupancyMaxActiveBlocksPerMultiprocessor);
  if (!missing.empty())
    throw DeviceError(fmt::format("{} lacks {}; is it NVIDIA's?", library.description(),
                                  fmt::join(missing, ", ")));
}

/// One driver serves all runtimes of its major version and of older ones.
void require_driver(const CudaApi& api, int runtime) {
  int driver = 0;
  require_cuda(api, api.cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  if (driver == 0)
    throw DeviceError(
        fmt::format("no NVIDIA driver (the CUDA runtime {} at {} is "
                    "there)",
                    cuda_version_text(runtime), api.path));
  if (driver / 1000 < runtime / 1000)
    throw DeviceError(fmt::format(
        "the NVIDIA driver supports CUDA {}, but the CUDA runtime at {} is {}; "
        "install a newer driver, or set DDPRUN_CUDART_LIB to a libcudart.so.{}",
        cuda_version_text(driver), api.path, cuda_version_text(runtime), driver / 1000));
}

/// The driver's library is in the process by now: the runtime has asked it for its version. A test
/// double is both.
void find_driver_functions(const SharedLibrary& runtime, CudaApi& api) {
  constexpr const char* kDriver = "libcuda.so.1";
  void* const driver = runtime.test_double() ? ::dlopen(runtime.path().c_str(), RTLD_NOW)
                                             : ::dlopen(kDriver, RTLD_NOW | RTLD_LOCAL);
  const auto find = [&](const char* name, auto*& slot) {
    if (driver != nullptr)
      slot = reinterpret_cast<std::remove_reference_t<decltype(slot)>>(::dlsym(driver, name));
    if (slot == nullptr)
      throw DeviceError(
          fmt::format("{} of the NVIDIA driver has no {}; reinstall the driver", kDriver, name));
  };
  find("cuCtxGetCurrent", api.cuCtxGetCurrent);
  find("cuCtxSetCurrent", api.cuCtxSetCurrent);
}

CudaApi functions_of(const SharedLibrary& library) {
  CudaApi api;
  api.path = library.path();
  api.test_double = library.test_double();
  // The version first: else a library that is too old is said to lack something.
  library.find("cudaRuntimeGetVersion", api.cudaRuntimeGetVersion);
  int version = 0;
  if (api.cudaRuntimeGetVersion == nullptr || api.cudaRuntimeGetVersion(&version) != kCudaSuccess)
    throw DeviceError(
        fmt::format("{} does not tell its version; is it NVIDIA's?", library.description()));
  if (version < kRuntimeFloor)
    throw DeviceError(fmt::format(
        "found the CUDA runtime {} at {}, needed {} or newer; set "
        "DDPRUN_CUDART_LIB to a newer libcudart.so",
        cuda_version_text(version), library.description(), cuda_version_text(kRuntimeFloor)));
  find_functions(library, api);
  require_driver(api, version);
  find_driver_functions(library, api);
  return api;
}

// One runtime may be too new for the driver, and an older one there as well.
const LoadedApi<CudaApi>& loaded() {
  static const auto once = LoadedApi<CudaApi>::load(where_to_look(), functions_of);
  return once;
}

}  // namespace

const CudaApi& cuda_api() {
  if (!why_no_cuda().empty()) throw DeviceError("[cuda] loading: " + why_no_cuda());
  return loaded().api;
}

const std::string& why_no_cuda() { return loaded().why_not; }

void require_cuda(const CudaApi& api, CudaError error, const char* what) {
  if (error == kCudaSuccess) return;
  api.cudaGetLastError();
  throw DeviceError(fmt::format("[cuda] {}: {} ({}): {}", what, api.cudaGetErrorName(error), error,
                                api.cudaGetErrorString(error)));
}

std::string cuda_version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace ddprun
