// SPDX-License-Identifier: MIT
// Makes a GPU the calling thread's for the length of a scope, and touches no other GPU.
#pragma once

#include "cuda/cuda_api.h"

namespace ddprun {

/// Since CUDA 12 cudaSetDevice makes the device's context, hundreds of MiB in its memory, and so
/// does most other work of a thread that has none. A thread that never chose a device counts as one
/// of GPU 0: it gets back no device, where cudaSetDevice(0) would make a context there for every
/// rank of the host.
class SelectedDevice {
 public:
  /// Throws: DeviceError.
  SelectedDevice(const CudaApi& cuda, int device);
  SelectedDevice(const SelectedDevice&) = delete;
  SelectedDevice& operator=(const SelectedDevice&) = delete;
  ~SelectedDevice();

 private:
  const CudaApi& cuda_;
  CudaContext before_ = nullptr;
  bool changed_ = false;
};

}  // namespace ddprun
