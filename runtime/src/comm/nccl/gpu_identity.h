// SPDX-License-Identifier: MIT
// What ranks tell each other through the store before they make an NCCL communicator, so that
// ranks that do not fit together all fail with the same text. NCCL would tell some of them only,
// late, and in its own terms.
#pragma once

#include <ddprun/deadline.h>
#include <ddprun/store.h>

#include <chrono>
#include <string>
#include <vector>

namespace ddprun {

struct GpuIdentity {
  std::string host;      // what NCCL tells hosts apart by: boot and name, or NCCL_HOSTID
  std::string hostname;  // for people
  std::string bus_id;    // of the GPU: "0000:01:00.0"
  std::string nccl;      // "2.28.9"
  std::string nccl_path;
  std::string cuda;                   // "13.0 (driver 13.0)"
  std::string failure;                // why the GPU cannot be used after all; empty: it can
  std::string fault;                  // in this rank's NCCL_* variables; empty: none
  std::vector<std::string> warnings;  // about them; not told to the others

  /// Selects the device in the calling thread. What CUDA or NCCL refuse is not thrown: it is a
  /// failure that all ranks are to hear of.
  static GpuIdentity of_this_process(int device);
};

/// Publishes one's own and compares all, in rank order. Rank 0 logs what there is to warn of.
/// Throws: the same on all ranks: DeviceError when one's GPU failed; UsageError when two use one
///         GPU, have different versions of NCCL, or one has a variable that NCCL would misread.
///         TimeoutError naming the ranks that have not published theirs by `deadline`, the end of
///         `timeout`.
void check_identities(Store& store, int rank, int size, const GpuIdentity& own,
                      std::chrono::milliseconds timeout, Deadline deadline);

}  // namespace ddprun
