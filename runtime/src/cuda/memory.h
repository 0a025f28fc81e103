// SPDX-License-Identifier: MIT
// Device memory, and the few copies that the host waits for.
//
// Threads: any. Throws: DeviceError when CUDA refuses, TimeoutError when a wait ends first.
#pragma once

#include <ddprun/deadline.h>

#include <cstddef>
#include <memory>

#include "cuda/cuda_api.h"

namespace ddprun {

/// Holds `bytes` at `contents`, or zeros if that is null. Blocks: until it does, at most a minute.
std::shared_ptr<std::byte[]> allocate_on_device(std::size_t bytes, int device,
                                                const void* contents);

/// Blocks: until `stream` has done what is on it and the bytes are at `to`, in host memory.
void read_from_device(void* to, const void* from, std::size_t bytes, CudaStream stream,
                      Deadline deadline);

}  // namespace ddprun
