// SPDX-License-Identifier: MIT
// Makes a GPU the calling thread's for the length of a scope.
#pragma once

#include "cuda/cuda_api.h"

namespace ddprun {

class SelectedDevice {
 public:
  /// Throws: DeviceError.
  SelectedDevice(const CudaApi& cuda, int device) : cuda_(cuda), device_(device) {
    require_cuda(cuda_, cuda_.cudaGetDevice(&before_), "cudaGetDevice");
    if (before_ != device_) require_cuda(cuda_, cuda_.cudaSetDevice(device_), "cudaSetDevice");
  }
  SelectedDevice(const SelectedDevice&) = delete;
  SelectedDevice& operator=(const SelectedDevice&) = delete;
  ~SelectedDevice() {
    if (before_ != device_) cuda_.cudaSetDevice(before_);
  }

 private:
  const CudaApi& cuda_;
  int device_;
  int before_ = 0;
};

}  // namespace ddprun
