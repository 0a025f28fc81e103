// SPDX-License-Identifier: MIT
// One NCCL communicator, made and ended so that no rank hangs for ever.
// https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/communicators.html
#pragma once

#include <ddprun/deadline.h>
#include <ddprun/store.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>

#include "comm/nccl/nccl_api.h"

namespace ddprun {

/// A rank's place among those that make a communicator.
struct CommSetup {
  Store& store;  // the unique id goes through it, and who has come is known from it
  int rank;
  int size;
  int device;
  std::chrono::milliseconds timeout;
};

/// NCCL allows one call of a communicator at a time, so calls wait for each other. An abort waits
/// for the call under way a little, then goes on: it may be that call's only way to return. Where
/// calls block that is not safe, and the call is left alone.
/// Threads: any.
class NcclCommunicator {
 public:
  /// Blocks: until all ranks are in NCCL's set-up together, at most until `deadline`, calling
  ///         `look_around` now and then, which throws when there is no point in waiting on.
  /// Throws: TimeoutError naming the ranks that never arrived; DeviceError.
  NcclCommunicator(const NcclApi& nccl, const CudaApi& cuda, const CommSetup& setup,
                   const std::function<void()>& look_around, Deadline deadline);
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;
  /// Aborts what was neither closed nor aborted.
  ~NcclCommunicator();

  /// Null after the end.
  NcclComm handle() const;

  using Call = std::function<NcclResult(NcclComm)>;
  /// Makes one call of NCCL and sees it through when it answers "in progress".
  /// Throws: DeviceError with NCCL's reason, or when the communicator has ended.
  void call(const char* name, const Call& one);

  /// The error that NCCL met behind the scenes, if any. Empty, without waiting, while a call is
  /// under way.
  std::optional<NcclResult> async_error();

  /// The clean end, to be called by all ranks when nothing is under way. False when that was not
  /// possible within `deadline`.
  bool close(Deadline deadline);
  /// Ends what is under way and lets it fail. Logs and leaves the communicator alone when NCCL has
  /// not returned within `deadline`, and when calls block while one is under way.
  void abort(Deadline deadline);

 private:
  void start(const CommSetup& setup, const std::function<void()>& look_around, Deadline deadline);
  void settle(const CommSetup& setup, const std::function<void()>& look_around, Deadline deadline);
  struct Ended {
    NcclComm comm;  // null: it had ended before
    bool idle;      // no call is under way
  };
  Ended end(Deadline patience);
  bool ended() const;

  const NcclApi& nccl_;
  const CudaApi& cuda_;
  int device_;
  bool blocking_;  // calls return when they are done, and only then
  mutable std::mutex mutex_;
  std::condition_variable idle_;
  bool busy_ = false;        // guarded by mutex_: a call is under way
  NcclComm comm_ = nullptr;  // guarded by mutex_
};

}  // namespace ddprun
