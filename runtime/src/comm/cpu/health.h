// SPDX-License-Identifier: MIT
// Who is alive, and what ended the group. The first failure is recorded once, in memory that all
// ranks see, so that every rank names the same culprit: whoever fails because of it dies later.
#pragma once

#include <ddprun/backend.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <poll.h>
#include <sys/types.h>

#include "base/unique_fd.h"
#include "comm/cpu/page.h"

namespace ddprun {

class Health {
 public:
  /// `pids`: 0 for a rank that is a thread of this process or cannot be seen from it.
  Health(int rank, std::vector<Page*> pages, const std::vector<pid_t>& pids,
         std::chrono::milliseconds timeout);

  /// From now on it watches beside the operations, of which its texts know nothing.
  void look_on() { looks_on_ = true; }

  /// Names the operation, which starts at `step`, in the texts of errors from now on.
  /// Throws: as throw_failure() when the group has failed already.
  void begin(const Call& call, std::uint64_t sequence, std::uint32_t step);

  bool failed() const { return central_.failure.load(std::memory_order_acquire) != 0; }
  /// A rank whose process has ended; about 50 ns a rank.
  std::optional<int> find_dead();

  /// Makes this the group's failure unless there is one already, and wakes everybody who waits.
  void record(int rank, Cause cause);
  /// For Cause::failed and aborted: `reason` reaches the other ranks. Threads: any.
  void record_own(Cause cause, std::string_view reason);
  /// record(), then throws what was recorded first.
  [[noreturn]] void fail(int rank, Cause cause);
  /// The calls in the bells of this step differ: fails the rank that is not with the majority.
  [[noreturn]] void fail_difference();
  /// RemoteError; TimeoutError for a silent rank; Error for what this rank did itself.
  [[noreturn]] void throw_failure() const;

  /// This rank takes part in nothing more: who still waits for it learns that it left.
  void leave();

 private:
  std::string describe(int rank, Cause cause) const;
  std::string describe_difference() const;
  std::vector<Call> calls() const;

  int rank_;
  std::vector<Page*> pages_;
  Central& central_;
  std::vector<UniqueFd> processes_;  // pidfds, by rank
  std::vector<pollfd> watched_;      // of them; -1 for ranks that have left in order
  std::chrono::milliseconds timeout_;
  std::atomic<bool> reason_given_{false};
  Call call_;
  std::uint64_t sequence_ = 0;
  std::uint32_t step_ = 0;
  bool looks_on_ = false;
};

/// Before the page is shared: nobody may ask for the lifeline of a page that has none.
void init_lifeline(Page& page);

/// "all_reduce(sum, f32 x 100)"
std::string describe(const Call& call);

}  // namespace ddprun
