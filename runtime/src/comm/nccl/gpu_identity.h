// SPDX-License-Identifier: MIT
// What ranks tell each other through the store before they make an NCCL communicator, so that
// ranks that cannot share one all fail with the same text: NCCL itself reports it late or, for two
// ranks on one GPU in some versions, by hanging.
#pragma once

#include <ddprun/deadline.h>
#include <ddprun/store.h>

#include <chrono>
#include <string>

namespace ddprun {

struct GpuIdentity {
  std::string host;      // what NCCL tells hosts apart by: boot and name, or NCCL_HOSTID
  std::string hostname;  // for people
  std::string bus_id;    // "0000:01:00.0"
  std::string nccl;      // "2.28.9"
  std::string nccl_path;
  std::string cuda;   // "driver 13.0, runtime 13.0"
  std::string fault;  // what is wrong with this rank's NCCL_* variables; empty: nothing

  /// Loads CUDA and NCCL. Throws: DeviceError.
  static GpuIdentity of_this_process(int device);
};

/// Publishes one's own and compares all, in rank order.
/// Throws: UsageError, the same on all ranks, when two ranks use one GPU, have different versions
///         of NCCL, or one has a variable that NCCL would misread; TimeoutError naming the ranks
///         that never published theirs within `timeout`, of which `deadline` is the end.
void check_identities(Store& store, int rank, int size, const GpuIdentity& own,
                      std::chrono::milliseconds timeout, Deadline deadline);

}  // namespace ddprun
