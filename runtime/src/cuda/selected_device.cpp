// SPDX-License-Identifier: MIT
// Selects by device and gives back by context; see selected_device.h.
#include "cuda/selected_device.h"

namespace ddprun {

SelectedDevice::SelectedDevice(const CudaApi& cuda, int device) : cuda_(cuda) {
  int current = -1;
  if (cuda_.cuCtxGetCurrent(&before_) == 0 && before_ != nullptr)
    require_cuda(cuda_, cuda_.cudaGetDevice(&current), "cudaGetDevice");
  changed_ = current != device;
  if (changed_) require_cuda(cuda_, cuda_.cudaSetDevice(device), "cudaSetDevice");
}

SelectedDevice::~SelectedDevice() {
  if (changed_) cuda_.cuCtxSetCurrent(before_);
}

}  // namespace ddprun
