// SPDX-License-Identifier: MIT
// A point in time after which waiting stops. Passed by value down a call chain, so that the parts
// of one operation share one budget instead of each taking the whole of it.
#pragma once

#include <algorithm>
#include <chrono>
#include <ratio>

namespace ddprun {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  /// `d` from now, of any unit; a century or more means never, and what is negative is now.
  template <class Rep, class Period>
  static Deadline after(std::chrono::duration<Rep, Period> d) {
    static_assert(
        std::chrono::treat_as_floating_point_v<Rep> || !std::ratio_less_v<Period, Clock::period>,
        "a unit finer than the clock's");
    // Compared in the unit that it comes in: milliseconds::max() does not fit the clock's.
    constexpr std::chrono::hours kCentury(24 * 36525);
    const auto now = Clock::now();
    if (!(d < kCentury)) return never();
    return Deadline(now + std::chrono::duration_cast<Clock::duration>(std::max(d, d.zero())));
  }
  static Deadline never() { return Deadline(Clock::time_point::max()); }

  bool is_never() const { return at_ == Clock::time_point::max(); }
  bool expired() const { return !is_never() && Clock::now() >= at_; }
  Clock::time_point at() const { return at_; }

  /// Milliseconds left, rounded up, never negative; a day when there is no limit, so that it fits
  /// every system call. Callers loop until expired().
  std::chrono::milliseconds remaining() const {
    constexpr std::chrono::milliseconds kDay = std::chrono::hours(24);
    if (is_never()) return kDay;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now());
    return std::clamp(left, std::chrono::milliseconds(0), kDay);
  }

  friend Deadline min(Deadline a, Deadline b) { return a.at_ < b.at_ ? a : b; }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

}  // namespace ddprun
