// SPDX-License-Identifier: MIT
// The reduction loops of every instruction set this machine has: same bits as a scalar loop.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "comm/cpu/processor.h"

using namespace ddprun;

namespace {

template <class T>
constexpr int kType = std::is_same_v<T, float>          ? 0
                      : std::is_same_v<T, double>       ? 1
                      : std::is_same_v<T, std::int32_t> ? 2
                                                        : 3;
enum { kSum, kAvg, kMin, kMax };

template <class T>
T one(int op, const std::vector<std::vector<T>>& in, std::size_t i) {
  T result = in[0][i];
  for (std::size_t r = 1; r < in.size(); ++r) {
    const T next = in[r][i];
    if (op == kMin || op == kMax) {
      if (next != next || (op == kMin ? next < result : next > result)) result = next;
    } else if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      result = static_cast<T>(static_cast<U>(result) + static_cast<U>(next));
    } else {
      result += next;
    }
  }
  if constexpr (std::is_floating_point_v<T>)
    if (op == kAvg) result /= static_cast<T>(in.size());
  return result;
}

template <class T>
std::vector<T> special_values() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> values = {T(1), T(0), Limits::max(), Limits::lowest(), Limits::min(), T(7), T(-3)};
  if constexpr (std::is_floating_point_v<T>)
    values.insert(values.end(), {T(-0.0), Limits::infinity(), -Limits::infinity(),
                                 Limits::quiet_NaN(), Limits::denorm_min(), T(0.1)});
  return values;
}

template <class T>
bool same(T a, T b) {
  return std::memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);  // a NaN's sign is nobody's
}

template <class T>
void check_tables() {
  const auto values = special_values<T>();
  for (const ReduceKernels* table : usable_reduce_kernels())
    for (const int op : {kSum, kAvg, kMin, kMax}) {
      if (std::is_integral_v<T> && op == kAvg) continue;
      for (const std::size_t ranks : {1u, 2u, 3u, 4u, 5u, 8u})
        for (const std::size_t count : {0u, 1u, 3u, 8u, 16u, 17u, 100u}) {
          std::vector<std::vector<T>> in(ranks, std::vector<T>(count + 1));
          std::vector<void*> pointers;
          for (std::size_t r = 0; r < ranks; ++r) {
            for (std::size_t i = 0; i <= count; ++i)
              in[r][i] = values[(i * (r + 3) + i / 5 * r) % values.size()];
            pointers.push_back(in[r].data());
          }
          const auto original = in;
          std::vector<T> out(count + 1, T(42));
          table->to[kType<T>][op](out.data(), pointers.data(), static_cast<int>(ranks), count);
          CHECK(out[count] == T(42));
          table->in_place[kType<T>][op](pointers.data(), static_cast<int>(ranks), count);
          std::size_t wrong = 0;
          for (std::size_t i = 0; i < count; ++i) {
            const T want = one(op, original, i);
            wrong += !same(out[i], want);
            for (const auto& buffer : in) wrong += !same(buffer[i], want);
          }
          for (std::size_t r = 0; r < ranks; ++r) wrong += !same(in[r][count], original[r][count]);
          CHECK_MESSAGE(wrong == 0, table->isa, " op ", op, " ranks ", ranks, " count ", count);
        }
    }
}

}  // namespace

TEST_SUITE("comm") {
  TEST_CASE_TEMPLATE("reduce kernels: every instruction set has the scalar loop's bits", T, float,
                     double, std::int32_t, std::int64_t) {
    check_tables<T>();
  }

  TEST_CASE("reduce kernels: swap_slot takes out and puts in at once, whatever the sizes") {
    for (const ReduceKernels* table : usable_reduce_kernels())
      for (const std::size_t out : {0u, 1u, 64u, 100u, 257u})
        for (const std::size_t in : {0u, 1u, 64u, 100u, 257u}) {
          std::vector<char> taken(300, 'o'), slot(300, 's'), next(300, 'n');
          table->swap_slot(taken.data(), slot.data(), next.data(), out, in);
          CHECK(std::string(taken.begin(), taken.end()) ==
                std::string(out, 's') + std::string(300 - out, 'o'));
          CHECK(std::string(slot.begin(), slot.end()) ==
                std::string(in, 'n') + std::string(300 - in, 's'));
        }
  }
}
