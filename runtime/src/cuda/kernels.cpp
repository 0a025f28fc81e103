// SPDX-License-Identifier: MIT
// Loads the kernels and launches them; see kernels.h.
#include "cuda/kernels.h"

#include <ddprun/error.h>

#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "cuda/kernel_image.h"

namespace ddprun {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::size_t kBlocksPerMultiprocessor = 8;  // 2048 threads: as many as one holds

constexpr std::array<const char*, kDeviceKernelCount> kNames = {  // in the order of DeviceKernel
    "ddprun_cast", "ddprun_pack", "ddprun_sgd", "ddprun_adamw", "ddprun_square_sum", "ddprun_norm"};

using Kernels = std::array<CudaKernel, kDeviceKernelCount>;

/// For all devices of the process; never unloaded, like the plugin.
Kernels load_kernels(const CudaApi& api) {
  if (api.cudaLibraryLoadData == nullptr || api.cudaLibraryGetKernel == nullptr)
    throw DeviceError(fmt::format(
        "[cuda] loading kernels: the CUDA runtime at {} cannot load them from data; install CUDA "
        "12.8 or newer, or set DDPRUN_CUDART_LIB to its libcudart.so",
        api.path));
  CudaLibrary library = nullptr;
  require_cuda(api,
               api.cudaLibraryLoadData(&library, kernel_image().data(), nullptr, nullptr, 0,
                                       nullptr, nullptr, 0),
               "loading kernels");
  Kernels kernels{};
  for (std::size_t i = 0; i < kernels.size(); ++i)
    require_cuda(api, api.cudaLibraryGetKernel(&kernels[i], library, kNames[i]), kNames[i]);
  return kernels;
}

std::size_t max_blocks(const CudaApi& api) {
  int device = 0;
  int multiprocessors = 0;
  require_cuda(api, api.cudaGetDevice(&device), "cudaGetDevice");
  require_cuda(
      api, api.cudaDeviceGetAttribute(&multiprocessors, kCudaAttributeMultiProcessorCount, device),
      "cudaDeviceGetAttribute");
  return static_cast<std::size_t>(multiprocessors) * kBlocksPerMultiprocessor;
}

}  // namespace

void launch_kernel(DeviceKernel kernel, const void* arguments, std::size_t blocks,
                   CudaStream stream) {
  const CudaApi& api = cuda_api();
  static const Kernels kernels = load_kernels(api);
  const auto index = static_cast<std::size_t>(kernel);
  if (blocks == 0) return;
  const CudaDim3 grid{static_cast<unsigned>(std::min(blocks, max_blocks(api)))};
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
