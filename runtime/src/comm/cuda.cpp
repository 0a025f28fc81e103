// SPDX-License-Identifier: MIT
// Checks the arguments of ddprun/cuda.h and hands them to the plugin.
#include <ddprun/cuda.h>
#include <ddprun/error.h>

#include <fmt/core.h>

#include "comm/cuda_plugin.h"

namespace ddprun::cuda {
namespace {

CudaPlugin& require_plugin(const char* what) {
  if (cuda_plugin() == nullptr)
    throw DeviceError(fmt::format("[cuda] {}: {}", what, why_no_cuda_plugin()));
  return *cuda_plugin();
}

}  // namespace

std::string why_unavailable(int device) {
  return cuda_plugin() == nullptr ? why_no_cuda_plugin()
                                  : cuda_plugin()->why_unavailable(device, 1);
}

int device_count() { return cuda_plugin() == nullptr ? 0 : cuda_plugin()->device_count(); }

std::shared_ptr<std::byte[]> allocate(std::size_t bytes, int device) {
  return require_plugin("allocate").allocate(bytes, device);
}

void fill_zero(TensorView target, Stream stream) {
  require_plugin("fill_zero").fill_zero(target, stream);
}

}  // namespace ddprun::cuda
