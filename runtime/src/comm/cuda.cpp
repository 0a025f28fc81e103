// SPDX-License-Identifier: MIT
// Hands the calls of ddprun/cuda.h to the plugin; its kernels are in cuda_kernels.cpp.
#include <ddprun/cuda.h>

#include "comm/cuda_plugin.h"

namespace ddprun::cuda {
std::string why_unavailable(int device) {
  return cuda_plugin() == nullptr ? why_no_cuda_plugin()
                                  : cuda_plugin()->why_unavailable(device, 1);
}

int device_count() { return cuda_plugin() == nullptr ? 0 : cuda_plugin()->device_count(); }

std::shared_ptr<std::byte[]> allocate(std::size_t bytes, int device) {
  return require_cuda_plugin("allocate").allocate(bytes, device, nullptr);
}

}  // namespace ddprun::cuda
