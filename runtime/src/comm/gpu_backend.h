// SPDX-License-Identifier: MIT
// Decides, in agreement with all ranks, whether a group works on GPUs, and makes its backend there.
#pragma once

#include <ddprun/backend.h>
#include <ddprun/process_group.h>
#include <ddprun/store.h>

#include <memory>
#include <string>

namespace ddprun {

struct GpuBackend {
  std::unique_ptr<Backend> backend;  // null: the group works in CPU memory only
  std::string why_not;               // the first rank without a GPU, and its reason
};

/// `host` works already and is what the ranks agree through.
/// Blocks: until all ranks have called it, at most options.timeout.
/// Throws: DeviceError with the same text on all ranks when options.backend is "nccl" and a rank
///         has no GPU; as CudaPlugin::make_nccl_backend.
GpuBackend make_gpu_backend(const std::shared_ptr<Store>& store, Backend& host, int rank, int size,
                            const ProcessGroupOptions& options);

}  // namespace ddprun
