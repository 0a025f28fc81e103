// SPDX-License-Identifier: MIT
// Deadline: durations of every unit and size, without overflow.
#include <ddprun/deadline.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <ratio>

#include <doctest/doctest.h>

using namespace ddprun;
using namespace std::chrono;

TEST_SUITE("base") {
  TEST_CASE("Deadline: the longest duration of every unit means never") {
    CHECK(Deadline::after(hours::max()).is_never());
    CHECK(Deadline::after(minutes::max()).is_never());
    CHECK(Deadline::after(seconds::max()).is_never());
    CHECK(Deadline::after(milliseconds::max()).is_never());
    CHECK(Deadline::after(nanoseconds::max()).is_never());
    CHECK(Deadline::after(duration<double>(std::numeric_limits<double>::infinity())).is_never());
    CHECK(Deadline::after(duration<double>(1e300)).is_never());
    CHECK_FALSE(Deadline::after(milliseconds::max()).expired());
    CHECK(Deadline::after(milliseconds::max()).remaining() == hours(24));
  }

  TEST_CASE("Deadline: zero and what is negative, however much, has passed") {
    CHECK(Deadline::after(seconds(0)).expired());
    CHECK(Deadline::after(seconds(-1)).expired());
    CHECK(Deadline::after(hours::min()).expired());
    CHECK(Deadline::after(milliseconds::min()).expired());
    CHECK(Deadline::after(nanoseconds::min()).expired());
    CHECK(Deadline::after(duration<double>(-std::numeric_limits<double>::infinity())).expired());
    CHECK(Deadline::after(milliseconds::min()).remaining() == milliseconds(0));
  }

  TEST_CASE("Deadline: what is in between is kept, in every unit") {
    const auto start = Deadline::Clock::now();
    const auto near = [start](Deadline deadline, Deadline::Clock::duration want) {
      const auto got = deadline.at() - start;
      return !deadline.is_never() && got >= want && got < want + minutes(1);
    };
    CHECK(near(Deadline::after(hours(24 * 3650)), hours(24 * 3650)));
    CHECK(near(Deadline::after(duration<std::int32_t, std::milli>(1500)), milliseconds(1500)));
    CHECK(near(Deadline::after(duration<double>(0.25)), milliseconds(250)));
    CHECK(near(Deadline::after(duration<double, std::ratio<3600>>(2)), hours(2)));
    CHECK(near(Deadline::after(nanoseconds(5)), nanoseconds(5)));
  }
}
