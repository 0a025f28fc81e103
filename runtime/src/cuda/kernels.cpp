// SPDX-License-Identifier: MIT
// Loads the kernels and launches them; see kernels.h.
#include "cuda/kernels.h"

#include <ddprun/error.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <string>

#include <fmt/core.h>

#include "cuda/kernel_image.h"

namespace ddprun {
namespace {

constexpr unsigned kThreads = 256;

constexpr std::array<const char*, kDeviceKernelCount> kNames = {  // in the order of DeviceKernel
    "ddprun_cast", "ddprun_pack", "ddprun_sgd", "ddprun_adamw", "ddprun_square_sum", "ddprun_norm"};

bool can_load(const CudaApi& api) {
  return api.cudaLibraryLoadData != nullptr && api.cudaLibraryGetKernel != nullptr;
}

// cudaErrorInvalidKernelImage, NoKernelImageForDevice, InvalidPtx, JitCompilerNotFound,
// UnsupportedPtxVersion
constexpr std::array<CudaError, 5> kImageErrors = {200, 209, 218, 221, 222};

/// Throws: DeviceError unless `error` is success; it says what driver is needed if that is at
/// fault.
void require_loaded(const CudaApi& api, CudaError error) {
  if (std::find(kImageErrors.begin(), kImageErrors.end(), error) == kImageErrors.end())
    return require_cuda(api, error, "loading kernels");
  api.cudaGetLastError();
  int driver = 0;
  api.cudaDriverGetVersion(&driver);
  const std::string needed = cuda_version_text(kernel_image_version());
  throw DeviceError(fmt::format(
      "[cuda] loading kernels: {} ({}): {}; they were compiled with CUDA {} for GPUs of compute "
      "capability 8.0 or more and need a driver for CUDA {} or newer, this one supports {}",
      api.cudaGetErrorName(error), error, api.cudaGetErrorString(error), needed, needed,
      cuda_version_text(driver)));
}

/// For all devices of the process; never unloaded, like the plugin. Threads: any.
class Kernels {
 public:
  using Limits = std::array<std::size_t, kDeviceKernelCount>;  // blocks that a device holds at once

  explicit Kernels(const CudaApi& api) : api_(api) {
    if (!can_load(api))
      throw DeviceError(fmt::format(
          "[cuda] loading kernels: the CUDA runtime at {} cannot load them from data; install CUDA "
          "12.8 or newer, or set DDPRUN_CUDART_LIB to its libcudart.so",
          api.path));
    CudaLibrary library = nullptr;
    require_loaded(api, api.cudaLibraryLoadData(&library, kernel_image().data(), nullptr, nullptr,
                                                0, nullptr, nullptr, 0));
    for (std::size_t i = 0; i < handles_.size(); ++i)
      require_loaded(api, api.cudaLibraryGetKernel(&handles_[i], library, kNames[i]));
  }

  CudaKernel operator[](std::size_t index) const { return handles_[index]; }

  /// Of the calling thread's device, onto which the kernels are loaded the first time.
  const Limits& limits() {
    int device = 0;
    require_cuda(api_, api_.cudaGetDevice(&device), "cudaGetDevice");
    const std::lock_guard lock(mutex_);
    const auto known = limits_.find(device);
    return known != limits_.end() ? known->second : limits_[device] = load_onto(device);
  }

 private:
  Limits load_onto(int device) const {
    int multiprocessors = 0;
    require_cuda(
        api_,
        api_.cudaDeviceGetAttribute(&multiprocessors, kCudaAttributeMultiProcessorCount, device),
        "cudaDeviceGetAttribute");
    Limits limits{};
    for (std::size_t i = 0; i < limits.size(); ++i) {
      touch(handles_[i]);
      limits[i] =
          static_cast<std::size_t>(multiprocessors) * blocks_per_multiprocessor(handles_[i]);
    }
    return limits;
  }

  void touch(CudaKernel kernel) const {
    alignas(std::max_align_t) std::array<std::byte, 1024> attributes;  // its struct is smaller
    if (api_.cudaFuncGetAttributes != nullptr)
      require_loaded(api_, api_.cudaFuncGetAttributes(attributes.data(), kernel));
  }

  std::size_t blocks_per_multiprocessor(CudaKernel kernel) const {
    constexpr int kMost = 2048 / kThreads;  // threads that no GPU has more of
    int blocks = 0;
    if (api_.cudaOccupancyMaxActiveBlocksPerMultiprocessor == nullptr) return kMost;
    if (api_.cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kThreads, 0) ==
        kCudaSuccess)
      return static_cast<std::size_t>(std::max(blocks, 1));
    api_.cudaGetLastError();
    return kMost;
  }

  const CudaApi& api_;
  std::array<CudaKernel, kDeviceKernelCount> handles_{};
  std::mutex mutex_;
  std::map<int, Limits> limits_;  // by device; guarded by mutex_
};

Kernels& all_kernels() {
  static Kernels kernels(cuda_api());
  return kernels;
}

}  // namespace

void prepare_kernels() {
  if (!can_load(cuda_api())) return;
  try {
    all_kernels().limits();
  } catch (const DeviceError&) {
    // A launch meets the same.
  }
}

void launch_kernel(DeviceKernel kernel, const void* arguments, std::size_t blocks,
                   CudaStream stream) {
  const CudaApi& api = cuda_api();
  Kernels& kernels = all_kernels();
  const auto index = static_cast<std::size_t>(kernel);
  if (blocks == 0) return;
  const CudaDim3 grid{static_cast<unsigned>(std::min(blocks, kernels.limits()[index]))};
  void* one_argument[] = {const_cast<void*>(arguments)};
  require_cuda(
      api, api.cudaLaunchKernel(kernels[index], grid, CudaDim3{kThreads}, one_argument, 0, stream),
      kNames[index]);
}

void scale(TensorView target, double factor, CudaStream stream) {
  const CastArguments arguments{target.data, target.data,  target.numel,
                                factor,      target.dtype, target.dtype};
  launch_kernel(DeviceKernel::cast, &arguments, blocks_for(target.numel), stream);
}

}  // namespace ddprun
