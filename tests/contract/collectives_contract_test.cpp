// SPDX-License-Identifier: MIT
// What every collective promises, against a naive answer; ranks are threads.
#include <ddprun/error.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "support/group_of_threads.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

// Unoptimised and instrumented builds sum a hundred times slower.
#if defined(__OPTIMIZE__)
const std::vector<std::size_t> kCounts = {
    0, 1, 2, 7, 8, 9, 17, 127, 129, 1023, 4097, 65537, (1u << 20) + 3};
#else
const std::vector<std::size_t> kCounts = {0, 1, 7, 8, 9, 129, 4097, 20'003};
#endif
constexpr std::size_t kMaxOffset = 3;  // elements, so that data does not start at a line

template <class T>
DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::f32;
  if constexpr (std::is_same_v<T, double>) return DType::f64;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::i32;
  return DType::i64;
}

enum class Memory { allocated, ordinary, mixed };

// Same bits on all ranks and runs: random values, whose sum depends on the order.
template <class T>
T value_of(int rank, std::size_t i) {
  std::uint64_t x =
      (i + 1) * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(rank) * 0xbf58476d1ce4e5b9u;
  x ^= x >> 29;
  x *= 0x94d049bb133111ebu;
  x ^= x >> 32;
  if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(static_cast<double>(x >> 11) * 0x1p-50 - 4.0);
  return static_cast<T>(x);  // wraps on sum
}

template <class T>
T answer(ReduceOp op, int world, std::size_t i) {
  T result = value_of<T>(0, i);
  for (int r = 1; r < world; ++r) {
    const T next = value_of<T>(r, i);
    if (op == ReduceOp::min) {
      result = std::min(result, next);
    } else if (op == ReduceOp::max) {
      result = std::max(result, next);
    } else if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      result = static_cast<T>(static_cast<U>(result) + static_cast<U>(next));
    } else {
      result += next;
    }
  }
  if constexpr (std::is_floating_point_v<T>)
    if (op == ReduceOp::avg) result /= static_cast<T>(world);
  return result;
}

template <class T>
void check_all_reduce(ProcessGroup& group, ReduceOp op, std::size_t count, std::size_t offset,
                      T* memory) {
  T* const data = memory + offset;
  for (std::size_t i = 0; i < count; ++i) data[i] = value_of<T>(group.rank(), i);
  const T guard = static_cast<T>(77);
  data[count] = guard;
  if (offset > 0) data[-1] = guard;
  group.all_reduce({data, count, dtype_of<T>(), {}}, op);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const T want = answer<T>(op, group.size(), i);
    wrong += std::memcmp(&data[i], &want, sizeof want) != 0;
  }
  CHECK_MESSAGE(wrong == 0, "count ", count, " offset ", offset, " op ", static_cast<int>(op));
  CHECK(data[count] == guard);
  if (offset > 0) CHECK(data[-1] == guard);
}

template <class T>
void check_every_count(int world, Memory memory) {
  const std::size_t room = kCounts.back() + kMaxOffset + 1;
  run_group(world, [&](ProcessGroup& group) {
    const auto shared = group.allocate(room * sizeof(T));
    std::vector<T> own(room);
    const bool use_shared =
        memory == Memory::allocated || (memory == Memory::mixed && group.rank() % 2 == 0);
    T* const data = use_shared ? reinterpret_cast<T*>(shared.get()) : own.data();
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::max}) {
      if (op == ReduceOp::avg && std::is_integral_v<T>) continue;
      for (const std::size_t count : kCounts)
        for (const std::size_t offset : {std::size_t{0}, std::size_t{1}, kMaxOffset})
          check_all_reduce<T>(group, op, count, offset, data);
    }
  });
}

}  // namespace

TEST_SUITE("collectives") {
  TEST_CASE_TEMPLATE("all_reduce: has the bits of the rank-order answer", T, float, double,
                     std::int32_t, std::int64_t) {
    for (const int world : {1, 2, 3, 4, 5, 8})
      for (const Memory memory : {Memory::allocated, Memory::ordinary, Memory::mixed}) {
        CAPTURE(world);
        CAPTURE(static_cast<int>(memory));
        check_every_count<T>(world, memory);
      }
  }
}
