// SPDX-License-Identifier: MIT
// What ended the group, as this rank's operations report it.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

namespace ddprun {

enum class FailureKind : std::uint8_t {
  failed,   // its device, NCCL or memory said no
  aborted,  // its program called abort()
  died,     // its process ended
  left,     // it destroyed the group while others go on
  silent    // it did not come in time
};

struct Failure {
  FailureKind kind = FailureKind::failed;
  int rank = 0;  // the culprit
  std::string text;
};

/// Set once and never cleared, before the communicator is aborted: an abort lets operations look
/// finished that are not. Threads: any.
class GroupFailure {
 public:
  explicit GroupFailure(int rank) : rank_(rank) {}

  bool known() const { return known_.load(std::memory_order_acquire); }
  /// Does nothing when there is one already.
  void record(const Failure& failure);
  /// When known().
  const Failure& failure() const { return failure_; }
  /// When known(): TimeoutError for a silent rank, RemoteError for what another one did,
  /// DeviceError or Error for what this one did.
  [[noreturn]] void raise() const;

 private:
  int rank_;
  std::mutex mutex_;
  std::atomic<bool> known_{false};
  Failure failure_;  // written before known_ becomes true, read after
};

}  // namespace ddprun
