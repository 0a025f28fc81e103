// SPDX-License-Identifier: MIT
// The backend for CPU memory: ranks of one machine that share memory.
#pragma once

#include <ddprun/backend.h>
#include <ddprun/process_group.h>
#include <ddprun/store.h>

#include <memory>

namespace ddprun {

/// Meets the other ranks, which must have asked for the same backend, through the store (null is
/// enough for size 1), at most for options.timeout.
/// Throws: UsageError when ranks do not fit together or run on different machines; TimeoutError
///         naming the ranks that are missing; DeviceError, ConnectionError.
std::unique_ptr<Backend> make_cpu_backend(Store* store, int rank, int size,
                                          const ProcessGroupOptions& options);

}  // namespace ddprun
