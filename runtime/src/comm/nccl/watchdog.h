// SPDX-License-Identifier: MIT
// Watches the operations of one rank from a thread of its own: sees them finish, and fails the
// group when one cannot. Asleep while nothing is under way.
#pragma once

#include <ddprun/backend.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "comm/nccl/nccl_comm.h"
#include "comm/nccl/nccl_work.h"
#include "comm/nccl/notices.h"
#include "comm/nccl/peer_watch.h"

namespace ddprun {

/// One rank of a group, for the parts that serve it. All but `failure` outlive them.
struct NcclRank {
  const CudaApi& cuda;
  const NcclApi* nccl;  // null when it is alone
  Backend& host;
  int rank;
  int device;
  std::shared_ptr<GroupFailure> failure;
};

/// Threads: any.
class Watchdog {
 public:
  Watchdog(NcclRank self, Notices& notices, NcclCommunicator& comm);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  /// To be called before the operation is handed to NCCL, which may never return.
  void watch(std::shared_ptr<NcclWorkState> work);
  /// Agrees with the other ranks on what ended the group, records it, and has the communicator
  /// aborted. Blocks: for as long as the store takes.
  void fail(const Failure& own);
  /// Fails the group with `own` if something is under way and nothing else is found to be the
  /// reason for `patience`, in which other ranks' failures come to light. The first call counts.
  void suspect(const Failure& own, std::chrono::milliseconds patience);
  /// Waits until the group has failed.
  void wait_for_failure();
  /// Waits until nothing is under way or the group has failed.
  void drain();
  std::uint64_t last_begun() const;

 private:
  struct Suspicion {
    Failure own;
    Deadline until;
  };
  void loop();
  void rest(std::unique_lock<std::mutex>& lock);
  std::shared_ptr<NcclWorkState> oldest_pending();
  std::optional<Failure> look(const NcclWorkState& oldest);
  void look_at_nccl();
  void end_group();

  NcclRank self_;
  Notices& notices_;
  NcclCommunicator& comm_;
  PeerWatch peers_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<NcclWorkState>> pending_;  // guarded by mutex_
  Position last_;                                       // guarded by mutex_
  std::optional<Suspicion> suspicion_;                  // guarded by mutex_
  bool stopping_ = false;                               // guarded by mutex_
  std::thread thread_;
};

}  // namespace ddprun
