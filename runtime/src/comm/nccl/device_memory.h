// SPDX-License-Identifier: MIT
// Memory of a group's GPU.
#pragma once

#include <cstddef>
#include <memory>

#include "comm/nccl/comm_stream.h"
#include "comm/nccl/group_failure.h"
#include "cuda/cuda_api.h"

namespace ddprun {

/// Uninitialised memory of the calling thread's device, which is `device`.
/// Owns:   the last owner frees it, from any thread, which waits for the device; when the group has
///         failed by then the device may never come to rest, and the memory is left to the driver.
///         So it is while an exception unwinds and something is under way on `stream`: what the
///         program has to say does not wait for another rank.
/// Throws: DeviceError.
std::shared_ptr<std::byte[]> allocate_device_memory(const CudaApi& cuda, int device,
                                                    std::size_t bytes,
                                                    const std::shared_ptr<const CommStream>& stream,
                                                    std::shared_ptr<const GroupFailure> failure);

}  // namespace ddprun
