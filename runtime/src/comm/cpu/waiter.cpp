// SPDX-License-Identifier: MIT
// The waiting policy; see waiter.h. Its numbers were measured: see the comment at each.
#include "comm/cpu/waiter.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm/cpu/processor.h"

namespace ddprun {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr milliseconds kSlice(50);      // longest time until a death is noticed
constexpr int kYields = 100;            // then sleep after all
constexpr microseconds kYieldTax(300);  // a longer yield went to somebody who computes
constexpr int kLongestBan = 512;
constexpr int kMeetingsBeforeSpread = 16;
constexpr microseconds kSpreadGap(1000);
constexpr microseconds kLongestSpreadGap(1'000'000);

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value, milliseconds limit) {
  const timespec relative{limit.count() / 1000, (limit.count() % 1000) * 1'000'000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &relative, nullptr, 0);
}

}  // namespace

void Waiter::wait_all(std::span<Flag* const> flags, std::uint32_t want) {
  const int size = static_cast<int>(flags.size());
  for (int r = 0; r < size; ++r) {
    if (r == rank_ || flags[static_cast<std::size_t>(r)]->reached(want)) continue;
    return wait_slowly({flags, want, r, size});
  }
}

void Waiter::wait_one(std::span<Flag* const> flags, int rank, std::uint32_t want) {
  if (!flags[static_cast<std::size_t>(rank)]->reached(want))
    wait_slowly({flags, want, rank, rank + 1});
}

void Waiter::wait_done(Central& central, std::uint32_t combined, std::span<Flag* const> flags,
                       std::uint32_t want) {
  if (!central.done.reached(combined))
    wait_slowly({flags, want, 0, static_cast<int>(flags.size()), &central, combined});
}

// The first rank that is missing, and whether any missing one was last seen on `cpu`.
Waiter::Missing Waiter::look(Target& target, int cpu) {
  Missing missing;
  if (target.done()) return missing;
  for (int r = target.first; r < target.last; ++r) {
    if (r == rank_) continue;
    Flag& flag = *target.flags[static_cast<std::size_t>(r)];
    const auto seq = flag.seq.load(std::memory_order_acquire);
    if (Flag::reached(seq, target.want)) continue;
    if (seq & Flag::kPoison) health_.fail(r, Cause::left);  // or whatever was recorded before
    if (missing.rank < 0) missing = {r, &flag, target.want, false};
    if (flag.cpu.load(std::memory_order_relaxed) == cpu) missing.on_this_cpu = true;
  }
  if (missing.rank >= 0) {
    target.first = missing.rank;
    if (target.central != nullptr) {
      missing.flag = &target.central->done;
      missing.want = target.combined;
    }
  } else if (target.central != nullptr && !target.done()) {
    const int combiner = target.central->combiner.load(std::memory_order_relaxed);
    const int arrived_last = combiner < 0 || combiner == rank_ ? (rank_ == 0 ? 1 : 0) : combiner;
    if (health_.failed()) health_.throw_failure();
    Flag& flag = *target.flags[static_cast<std::size_t>(arrived_last)];
    missing = {arrived_last, &target.central->done, target.combined,
               flag.cpu.load(std::memory_order_relaxed) == cpu};
  }
  return missing;
}

void Waiter::wait_slowly(Target target) {
  int cpu = ::sched_getcpu();
  int yields = 0;
  Clock::time_point spinning_since{};
  bool met = false;
  for (unsigned round = 0;; ++round) {
    const Missing missing = look(target, cpu);
    if (missing.rank < 0) return;
    if (!missing.on_this_cpu) {
      for (int i = 0; i < 32 && !missing.flag->reached(missing.want); ++i) pause_core();
      if (round % 8 != 0) continue;  // a look at the clock costs as much as this
      const auto now = Clock::now();
      if (spinning_since == Clock::time_point{}) spinning_since = now;
      if (now - spinning_since < spin_) continue;
      sleep(target, missing);
      spinning_since = {};
    } else {
      if (!std::exchange(met, true) && ++meetings_ >= kMeetingsBeforeSpread) {
        meetings_ = 0;
        spread(target.flags);
      }
      if (!try_yield(yields)) {
        sleep(target, missing);
        yields = 0;
      }
    }
    cpu = ::sched_getcpu();
  }
}

// Next to a stranger who computes a yield loses the core for milliseconds, where a sleeper that is
// woken preempts: after a long yield none for a while, doubling while it goes on.
bool Waiter::try_yield(int& yields) {
  const auto before = Clock::now();
  if (before < no_yield_until_ || yields >= kYields) return false;
  ++yields;
  ::sched_yield();
  const auto tax = Clock::now() - before;
  if (tax > kYieldTax) {
    no_yield_until_ = before + tax * ban_;
    ban_ = std::min(ban_ * 2, kLongestBan);
    good_yields_ = 0;
  } else if (++good_yields_ % 64 == 0) {
    ban_ = std::max(ban_ / 2, 1);
  }
  return true;
}

void Waiter::sleep(Target& target, const Missing& missing) {
  // Looks again after the bad news: a rank may do its part and then end.
  if (const auto dead = health_.find_dead(); dead && !arrived(target))
    health_.fail(*dead, Cause::died);
  if (health_.failed() && !arrived(target)) health_.throw_failure();
  if (deadline_.expired() && !arrived(target)) health_.fail(missing.rank, Cause::silent);
  Flag& flag = *missing.flag;
  flag.sleepers.fetch_add(1, std::memory_order_seq_cst);
  const auto seq = flag.seq.load(std::memory_order_seq_cst);
  if ((seq & Flag::kPoison) == 0 && !Flag::reached(seq, missing.want))
    futex_wait(flag.seq, seq, std::min(kSlice, deadline_.remaining()));
  flag.sleepers.fetch_sub(1, std::memory_order_relaxed);
}

// Two ranks that yield to each other can share one core for 10 ms while another idles, for the
// scheduler sees no sleeper to place. The highest rank on an overfull core moves itself to the
// emptiest one and gives itself back its mask at once.
void Waiter::spread(std::span<Flag* const> flags) {
  const auto now = Clock::now();
  if (now < next_spread_) return;
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  const int cpu = ::sched_getcpu();
  const int size = static_cast<int>(flags.size());
  const int cores = CPU_COUNT(&allowed);
  std::array<int, CPU_SETSIZE> load{};
  int highest = rank_;
  for (int r = 0; r < size; ++r) {
    const int at =
        r == rank_ ? cpu : flags[static_cast<std::size_t>(r)]->cpu.load(std::memory_order_relaxed);
    if (at < 0 || at >= CPU_SETSIZE) continue;
    ++load[static_cast<std::size_t>(at)];
    if (at == cpu) highest = std::max(highest, r);
  }
  next_spread_ = now + spread_gap_;
  if (cpu < 0 || cpu >= CPU_SETSIZE || highest > rank_) return;
  if (load[static_cast<std::size_t>(cpu)] <= (size + cores - 1) / cores) {
    spread_gap_ = kSpreadGap;
    return;
  }
  int best = cpu;
  for (int c = 0; c < CPU_SETSIZE; ++c)
    if (CPU_ISSET(c, &allowed) &&
        load[static_cast<std::size_t>(c)] < load[static_cast<std::size_t>(best)])
      best = c;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(best, &one);
  if (::sched_setaffinity(0, sizeof one, &one) == 0)
    ::sched_setaffinity(0, sizeof allowed, &allowed);
  spread_gap_ = std::min(spread_gap_ * 2, kLongestSpreadGap);  // the kernel may have its reasons
}

}  // namespace ddprun
