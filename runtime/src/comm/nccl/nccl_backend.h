// SPDX-License-Identifier: MIT
// The backend for GPU memory: NCCL on one stream per rank. A group of one rank needs no NCCL.
#pragma once

#include <ddprun/backend.h>
#include <ddprun/store.h>

#include <memory>

#include "comm/cuda_plugin.h"

namespace ddprun {

/// Behind CudaPlugin::make_nccl_backend, which says what holds.
std::unique_ptr<Backend> make_nccl_backend(std::shared_ptr<Store> store, Backend& host,
                                           const NcclBackendOptions& options);

}  // namespace ddprun
