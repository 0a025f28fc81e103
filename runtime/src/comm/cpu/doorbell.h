// SPDX-License-Identifier: MIT
// Ranks meet here: each rings its bell, saying what it calls, and waits for the others'. Nobody
// touches data before it has seen that all ranks make the same call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/cpu/health.h"
#include "comm/cpu/page.h"
#include "comm/cpu/waiter.h"

namespace ddprun {

/// Every call may throw as Health::throw_failure().
/// Threads: one at a time.
class Doorbell {
 public:
  Doorbell(int rank, std::vector<Page*> pages, Health& health);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(pages_.size()); }
  Health& health() { return health_; }
  Waiter& waiter() { return waiter_; }

  /// Starts an operation at a new step. Fill in bell() and box(), then ring().
  void begin(const Call& call, const Operation& operation, std::chrono::microseconds spin);
  Bell& bell(int rank) { return pages_[static_cast<std::size_t>(rank)]->bell[step_ & 1]; }
  std::byte* box(int rank) { return pages_[static_cast<std::size_t>(rank)]->box[step_ & 1]; }
  void ring() { bell(rank_).flag.post(step_); }
  /// Until all ranks have rung and, checked, for the same call.
  void meet();
  /// The allocation that all ranks have their data in; 0 when there is none.
  std::uint32_t common_allocation();
  /// ring() and wait once more in the same operation.
  void meet_again();

  // Combining, instead of meet(): the last to arrive does the work for all and rings once. The
  // straggler then never waits, and ranks that share a core are switched once instead of twice.
  /// After ring(). True for the last, which has checked the calls and owes ring_done().
  bool last_to_arrive();
  void ring_done();
  void wait_done();

  // Progress of the exchange slots: counters that only grow.
  void post_in(std::uint32_t value) { page().in.post(value); }
  void post_out(std::uint32_t value) { page().out.post(value); }
  std::span<Flag* const> in() const { return in_; }
  std::span<Flag* const> out() const { return out_; }

 private:
  Page& page() { return *pages_[static_cast<std::size_t>(rank_)]; }
  void check_calls();

  int rank_;
  std::vector<Page*> pages_;
  Health& health_;
  Waiter waiter_;
  std::vector<Flag*> bells_[2], in_, out_;  // by rank
  std::uint32_t step_ = 0;
  std::uint32_t combined_ = 0;  // operations combined so far
};

}  // namespace ddprun
