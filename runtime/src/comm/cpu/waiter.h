// SPDX-License-Identifier: MIT
// Waits for flags of other ranks. How: as long as nobody we wait for was last seen on our own core,
// spin a little (that keeps nobody from running), else yield; then sleep in a futex, in slices,
// looking at deaths and the deadline in between. No core count decides this, only where ranks ran.
#pragma once

#include <ddprun/deadline.h>

#include <chrono>
#include <cstdint>
#include <span>

#include "comm/cpu/health.h"
#include "comm/cpu/page.h"

namespace ddprun {

/// Threads: one at a time.
class Waiter {
 public:
  using Clock = Deadline::Clock;

  Waiter(Health& health, int rank) : health_(health), rank_(rank) {}

  /// For the waits from now on. `spin`: how long to spin before sleeping.
  void begin(Deadline deadline, std::chrono::microseconds spin) {
    deadline_ = deadline;
    spin_ = spin;
  }

  /// Until every rank's flag (by rank; one's own does not count) has reached `want`.
  /// Throws: as Health::throw_failure().
  void wait_all(std::span<Flag* const> flags, std::uint32_t want);
  /// Until `rank`'s flag has.
  void wait_one(std::span<Flag* const> flags, int rank, std::uint32_t want);
  /// Until central.done has reached `combined`: the last of all whose flag reaches `want` raises it.
  void wait_done(Central& central, std::uint32_t combined, std::span<Flag* const> flags,
                 std::uint32_t want);

 private:
  struct Target {
    std::span<Flag* const> flags;
    std::uint32_t want;
    int first;  // ranks before it have been seen to arrive
    int last;
    Central* central = nullptr;  // null: nobody combines
    std::uint32_t combined = 0;

    bool done() const { return central != nullptr && central->done.reached(combined); }
  };
  struct Missing {
    int rank = -1;  // -1: none
    Flag* flag = nullptr;    // what to wait for: this one
    std::uint32_t want = 0;  // reaching that
    bool on_this_cpu = false;
  };

  Missing look(Target& target, int cpu);
  bool arrived(Target& target) { return look(target, -1).rank < 0; }
  void wait_slowly(Target target);
  bool try_yield(int& yields);
  void sleep(Target& target, const Missing& missing);
  void spread(std::span<Flag* const> flags);

  Health& health_;
  int rank_;
  Deadline deadline_ = Deadline::never();
  std::chrono::microseconds spin_{50};
  Clock::time_point no_yield_until_{};  // a yield gave our core away for long
  int ban_ = 1;                         // for how many times its length we then refrain
  int good_yields_ = 0;
  int meetings_ = 0;  // of two ranks on one core
  Clock::time_point next_spread_{};
  std::chrono::microseconds spread_gap_{1000};
};

}  // namespace ddprun
