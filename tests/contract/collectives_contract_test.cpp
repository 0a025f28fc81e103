// SPDX-License-Identifier: MIT
// What every collective promises, against a naive answer; ranks are threads.
#include <ddprun/error.h>
#include <ddprun/prefix_store.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <thread>
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
const std::vector<std::size_t> kOffsets = {0, 1, 3};  // elements: data need not start at a line
const std::vector<std::size_t> kCounts = {
    0, 1, 2, 7, 8, 9, 17, 127, 129, 1023, 4097, 65537, (1u << 20) + 3};
#else
const std::vector<std::size_t> kOffsets = {1};
const std::vector<std::size_t> kCounts = {0, 1, 9, 129, 4097, 10'003};
#endif
constexpr std::size_t kLarge = 1u << 20;  // tested at one offset: the naive answer is slow

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
  const std::size_t room = kCounts.back() + kOffsets.back() + 1;
  run_group(world, [&](ProcessGroup& group) {
    const auto shared = group.allocate(room * sizeof(T));
    std::vector<T> own(room);
    const bool use_shared =
        memory == Memory::allocated || (memory == Memory::mixed && group.rank() % 2 == 0);
    T* const data = use_shared ? reinterpret_cast<T*>(shared.get()) : own.data();
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::max}) {
      if (op == ReduceOp::avg && std::is_integral_v<T>) continue;
      for (const std::size_t count : kCounts)
        for (const std::size_t offset : kOffsets)
          if (count < kLarge || offset == 1) check_all_reduce<T>(group, op, count, offset, data);
    }
  });
}

// All ranks reach this point before one goes on, without the group's help.
class Meeting {
 public:
  explicit Meeting(int n) : barrier_(n) {}
  void wait() { barrier_.arrive_and_wait(); }

 private:
  std::barrier<> barrier_;
};

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

using Calls = std::function<void(ProcessGroup&)>;

// Rank `odd` of n makes other calls than the rest; every rank must say so, and stay broken.
void check_mismatch(int n, int odd, const Calls& odd_calls, const Calls& calls,
                    const std::string& text) {
  std::vector<std::string> again(static_cast<std::size_t>(n));
  const auto errors = errors_of_group(n, [&](ProcessGroup& group) {
    try {
      group.rank() == odd ? odd_calls(group) : calls(group);
    } catch (const RemoteError& error) {
      CHECK(error.rank() == odd);
      try {
        group.barrier();
      } catch (const RemoteError& later) {
        again[static_cast<std::size_t>(group.rank())] = later.what();
      }
      throw;
    }
  });
  for (int r = 0; r < n; ++r) {
    const auto& error = errors[static_cast<std::size_t>(r)];
    CHECK_MESSAGE(contains(error, text), "rank ", r, ": ", error);
    CHECK(again[static_cast<std::size_t>(r)] == error);
  }
}

}  // namespace

TEST_SUITE("collectives") {
  TEST_CASE("broadcast: every rank has root's data, whoever is root") {
    for (const int world : {1, 2, 3, 5})
      for (const Memory memory : {Memory::allocated, Memory::ordinary, Memory::mixed}) {
        const std::size_t room = kCounts.back() + 1;
        run_group(world, [&](ProcessGroup& group) {
          const auto shared = group.allocate(room * sizeof(double));
          std::vector<double> own(room);
          const bool use_shared =
              memory == Memory::allocated || (memory == Memory::mixed && group.rank() % 2 == 0);
          double* const data = use_shared ? reinterpret_cast<double*>(shared.get()) : own.data();
          for (int root = 0; root < world; ++root)
            for (const std::size_t count : kCounts) {
              for (std::size_t i = 0; i < count; ++i) data[i] = value_of<double>(group.rank(), i);
              data[count] = 77;
              group.broadcast({data, count, DType::f64, {}}, root);
              std::size_t wrong = 0;
              for (std::size_t i = 0; i < count; ++i) wrong += data[i] != value_of<double>(root, i);
              CHECK_MESSAGE(wrong == 0, "world ", world, " root ", root, " count ", count);
              CHECK(data[count] == 77);
            }
        });
      }
  }

  TEST_CASE("all_reduce: a NaN of any rank propagates through every op") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    run_group(3, [&](ProcessGroup& group) {
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::max})
        for (const std::size_t count : {5u, 300u, 20'000u})
          for (int source = 0; source < 3; ++source) {
            std::vector<float> data(count, float(group.rank()));
            if (group.rank() == source) data[count - 2] = nan;
            group.all_reduce(view(data), op);
            CHECK(std::isnan(data[count - 2]));
            CHECK_FALSE(std::isnan(data[count - 1]));
          }
    });
  }

  TEST_CASE("mean: is the average of the ranks' numbers") {
    run_group(3, [](ProcessGroup& group) { CHECK(group.mean(group.rank() + 0.5) == 1.5); });
  }

  TEST_CASE("allocate: zeroed, freed in any order, and outlives the group") {
    std::vector<std::shared_ptr<std::byte[]>> kept(2);
    run_group(2, [&](ProcessGroup& group) {
      auto first = group.allocate(3'000'000);
      auto second = group.allocate(100);
      CHECK(std::all_of(first.get(), first.get() + 3'000'000,
                        [](std::byte b) { return b == std::byte{0}; }));
      // One rank frees what the other goes on using: it must fall back to what both have.
      std::vector<float> own(25, 1.0f);
      auto* data = reinterpret_cast<float*>(second.get());
      if (group.rank() == 0) first.reset();
      std::fill(data, data + 25, 1.0f);
      group.all_reduce(group.rank() == 0 ? view(own) : TensorView{data, 25, DType::f32, {}});
      CHECK((group.rank() == 0 ? own[24] : data[24]) == 2.0f);
      auto third = group.allocate(40'000 * sizeof(float));  // large: by slices
      auto* large = reinterpret_cast<float*>(third.get());
      std::fill(large, large + 40'000, 1.0f);
      group.all_reduce({large + group.rank(), 39'000, DType::f32, {}});  // each its own offset
      CHECK(large[20'000] == 2.0f);
      CHECK(large[39'500] == 1.0f);
      kept[static_cast<std::size_t>(group.rank())] = third;
    });
    for (auto& memory : kept) memory[0] = std::byte{1};
  }

  TEST_CASE("allocate: more than the machine has is refused with the size, on all ranks") {
    const auto errors =
        errors_of_group(2, [](ProcessGroup& group) { group.allocate(std::size_t{1} << 50); });
    for (const auto& error : errors)
      CHECK_MESSAGE(contains(error, "1125899906842624 bytes"), error);
  }

  TEST_CASE(
      "async: operations finish in order, whoever waits, and barrier waits for dropped ones") {
    run_group(3, [](ProcessGroup& group) {
      constexpr std::size_t kFlights = 200;
      std::vector<std::vector<float>> data;
      for (std::size_t i = 0; i < kFlights; ++i)
        data.emplace_back(i % 7 == 0 ? 5000 : 3, float(group.rank()));
      std::vector<Work> works;
      for (auto& buffer : data)
        works.push_back(group.all_reduce(view(buffer), ReduceOp::sum, {}, true));
      std::thread([&] { works[kFlights - 1].wait(); }).join();
      for (const Work& work : works) CHECK(work.done());
      for (auto& buffer : data) group.all_reduce(view(buffer), ReduceOp::sum, {}, true);  // dropped
      std::vector<float> last(4, 1.0f);
      group.all_reduce(view(last));  // blocking, behind the others
      for (const auto& buffer : data) CHECK(buffer.back() == 9.0f);
      CHECK(last[0] == 3.0f);
      for (auto& buffer : data) group.broadcast(view(buffer), 1, {}, true);
      group.barrier();
      for (const auto& buffer : data) CHECK(buffer.front() == 9.0f);
      CHECK(group.stats().all_reduce.operations == 2 * kFlights + 1);
      CHECK(group.stats().broadcast.operations == kFlights);
      CHECK(group.stats().barrier.operations == 1);
      CHECK(group.stats().all_reduce.time.count() > 0);
    });
  }

  TEST_CASE("mismatch: every rank names the odd one and both calls") {
    for (const std::size_t count : {std::size_t{1}, kCounts.back()}) {
      CAPTURE(count);
      const auto reduce = [](std::size_t n, ReduceOp op = ReduceOp::sum) {
        return [=](ProcessGroup& group) {
          std::vector<float> data(n, 1.0f);
          const auto untouched = data;
          try {
            group.all_reduce(view(data), op);
          } catch (const Error&) {
            CHECK(data == untouched);
            throw;
          }
        };
      };
      const auto number = std::to_string(count);
      check_mismatch(4, 2, reduce(2 * count), reduce(count),
                     "rank 2 called all_reduce(sum, f32 x " + std::to_string(2 * count) +
                         "), but rank 0 called all_reduce(sum, f32 x " + number + ")");
      check_mismatch(3, 0, reduce(count, ReduceOp::max), reduce(count),
                     "rank 0 called all_reduce(max, f32 x " + number +
                         "), but rank 1 called all_reduce(sum, f32 x " + number + ")");
      check_mismatch(
          4, 3,
          [&](ProcessGroup& group) {
            std::vector<double> data(count);
            group.all_reduce(view(data));
          },
          reduce(count), "rank 3 called all_reduce(sum, f64 x " + number);
      const auto broadcast = [&](int root) {
        return [=](ProcessGroup& group) {
          std::vector<float> data(count);
          group.broadcast(view(data), root);
        };
      };
      check_mismatch(4, 1, broadcast(0), reduce(count),
                     "operation #1: rank 1 called broadcast(f32 x " + number + ", root 0)");
      check_mismatch(4, 1, broadcast(1), broadcast(0),
                     "root 1), but rank 0 called broadcast(f32 x");
      check_mismatch(
          2, 1, [](ProcessGroup& group) { group.barrier(); }, reduce(count),
          "rank 1 called barrier(), but rank 0 called all_reduce");
      const auto two = [&](std::size_t a, std::size_t b) {
        return [=](ProcessGroup& group) {
          std::vector<float> data(std::max(a, b));
          group.barrier();
          group.all_reduce({data.data(), a, DType::f32, {}}, ReduceOp::sum, {}, true);
          group.all_reduce({data.data(), b, DType::f32, {}}, ReduceOp::sum, {}, true).wait();
        };
      };
      check_mismatch(4, 2, two(count, 7), two(7, count), "operation #2: rank 2 called");
    }
  }

  TEST_CASE("deadline: the rank that does not come is named, also to itself") {
    Meeting others_gave_up(3);
    const auto errors = errors_of_group(
        3,
        [&](ProcessGroup& group) {
          std::vector<float> data(100);
          group.barrier();
          if (group.rank() == 1) others_gave_up.wait();
          try {
            group.all_reduce(view(data));
          } catch (const TimeoutError&) {
            if (group.rank() != 1) others_gave_up.wait();
            throw;
          }
        },
        std::chrono::milliseconds(300));
    CHECK_MESSAGE(
        contains(errors[0], "all_reduce(sum, f32 x 100) #2: rank 1 has not arrived within"),
        errors[0]);
    CHECK(errors[2] == errors[0]);
    CHECK_MESSAGE(contains(errors[1], "the other ranks gave up waiting for this rank after 300 ms"),
                  errors[1]);
  }

  TEST_CASE("abort: fails what is pending and what comes, on all ranks") {
    const auto errors = errors_of_group(3, [](ProcessGroup& group) {
      group.barrier();
      std::vector<float> data(10);
      if (group.rank() == 2) group.abort("no more data");
      const Work work = group.all_reduce(view(data), ReduceOp::sum, {}, true);
      work.wait();
    });
    CHECK_MESSAGE(contains(errors[0], "rank 2 aborted the group: no more data"), errors[0]);
    CHECK(errors[1] == errors[0]);
    CHECK_MESSAGE(contains(errors[2], "this rank aborted the group: no more data"), errors[2]);
  }

  TEST_CASE("abort: wakes a rank that waits in another thread") {
    const auto store = make_hash_store();
    Meeting end(2);
    const auto errors = errors_of_ranks(2, [&](int rank) {
      ProcessGroup group(store, rank, 2, {.timeout = kTestTimeout});
      if (rank == 1) return end.wait();
      std::vector<float> data(1);
      const Work work = group.all_reduce(view(data), ReduceOp::sum, {}, true);
      std::jthread aborter([&] { group.abort("enough"); });
      try {
        work.wait();
      } catch (const Error&) {
        end.wait();
        throw;
      }
    });
    CHECK_MESSAGE(contains(errors[0], "enough"), errors[0]);
  }

  TEST_CASE("destroy: pending operations fail with it, here and as a departure elsewhere") {
    Meeting queued(2);
    const auto errors = errors_of_ranks(2, [&, store = make_hash_store()](int rank) {
      std::vector<float> data(10);
      Work work;
      {
        ProcessGroup group(store, rank, 2, {.timeout = kTestTimeout});
        group.barrier();
        if (rank == 0) work = group.all_reduce(view(data), ReduceOp::sum, {}, true);
        queued.wait();
        if (rank == 1) queued.wait();  // stays away from the operation
      }
      if (rank == 0) queued.wait();
      work.wait();
    });
    CHECK_MESSAGE(contains(errors[0], "group destroyed"), errors[0]);
    CHECK(errors[1].empty());
  }

  TEST_CASE("destroy: several groups in any order, moved-from ones, and twice") {
    run_ranks(2, [store = make_hash_store()](int rank) {
      std::vector<ProcessGroup> groups;
      for (const char* prefix : {"a", "b", "c"})
        groups.emplace_back(with_prefix(store, prefix), rank, 2,
                            ProcessGroupOptions{.timeout = kTestTimeout});
      for (auto& group : groups) group.barrier();
      ProcessGroup moved = std::move(groups[1]);
      CHECK(moved.mean(rank) == 0.5);
      CHECK_THROWS_WITH_AS(groups[1].barrier(), doctest::Contains("moved from"), UsageError);
      if (rank == 0) std::reverse(groups.begin(), groups.end());
      groups.clear();
      CHECK(moved.mean(rank) == 0.5);
      ProcessGroup& itself = moved;
      moved = std::move(itself);
      CHECK(moved.mean(rank) == 0.5);
      moved = ProcessGroup(nullptr, 0, 1);
      CHECK(moved.mean(7) == 7);
    });
  }

  TEST_CASE("arguments: what cannot be right is refused at the call, and nothing breaks") {
    run_group(2, [](ProcessGroup& group) {
      std::vector<std::int32_t> whole(3);
      std::vector<float> data(3);
      const auto refused = [&](const char* text, const std::function<void()>& call) {
        CHECK_THROWS_WITH_AS(call(), doctest::Contains(text), UsageError);
      };
      refused("avg of i32", [&] { group.all_reduce(view(whole), ReduceOp::avg); });
      refused("invalid root rank 2", [&] { group.broadcast(view(data), 2); });
      refused("invalid root rank -1", [&] { group.broadcast(view(data), -1); });
      refused("has no data", [&] { group.all_reduce({nullptr, 3, DType::f32, {}}); });
      refused("is on cuda:0", [&] {
        group.all_reduce({data.data(), 3, DType::f32, {DeviceType::cuda, 0}});
      });
      group.all_reduce({nullptr, 0, DType::f32, {}});
      group.barrier();
    });
  }

  TEST_CASE("set-up: arguments, missing ranks, and ranks that disagree are named") {
    const auto store = make_hash_store();
    CHECK_THROWS_WITH_AS(ProcessGroup(store, 2, 2), doctest::Contains("rank 2 must be in 0..1"),
                         UsageError);
    CHECK_THROWS_WITH_AS(ProcessGroup(nullptr, 0, 2), doctest::Contains("needs a store"),
                         UsageError);
    CHECK_THROWS_WITH_AS(ProcessGroup(store, 0, 1, {.backend = "mpi"}),
                         doctest::Contains("backend 'mpi' is unknown"), UsageError);
    const ProcessGroupOptions soon{.timeout = std::chrono::milliseconds(200)};
    auto errors = errors_of_ranks(2, [&](int rank) { ProcessGroup(store, 2 * rank, 4, soon); });
    for (const auto& error : errors)
      CHECK_MESSAGE(contains(error, "rank(s) 1, 3 of 4 have not arrived within 200 ms"), error);
    const auto other = make_hash_store();
    errors = errors_of_ranks(3, [&](int rank) {
      ProcessGroup(other, rank, rank == 1 ? 2 : 3, {.timeout = kTestTimeout});
    });
    for (const auto& error : errors)
      CHECK_MESSAGE(contains(error, "rank 1 has world size 2, but rank 0 has 3"), error);
    CHECK_THROWS_WITH_AS(ProcessGroup(other, 1, 2), doctest::Contains("rank 1 has joined already"),
                         UsageError);
  }

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
