// SPDX-License-Identifier: MIT
// spawn: closures as ranks, their failures as values.
#include <ddprun/ddprun.h>
#include <ddprun/deadline.h>
#include <ddprun/error.h>
#include <ddprun/spawn.h>
#include <ddprun/tcp_store.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spawn_child.h"
#include "support/launcher.h"

using namespace ddprun;
using namespace ddprun::test;
using namespace std::chrono_literals;

namespace {

/// Counters that ranks and the test share.
class SharedCounters {
 public:
  SharedCounters()
      : memory_(static_cast<std::atomic<int>*>(
            ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  SharedCounters(const SharedCounters&) = delete;
  SharedCounters& operator=(const SharedCounters&) = delete;
  ~SharedCounters() { ::munmap(memory_, 4096); }
  std::atomic<int>& operator[](int i) const { return memory_[i]; }

 private:
  std::atomic<int>* memory_;
};

[[noreturn]] void wait_for_ever() {
  for (;;) ::pause();
}

/// run_spawn without the test framework's handler for SIGTERM in the ranks.
RunResult run_plainly(const TrainFn& fn, int nprocs, const SpawnOptions& options = {}) {
  const auto old = std::signal(SIGTERM, SIG_DFL);
  RunResult result = run_spawn(fn, nprocs, options);
  std::signal(SIGTERM, old);
  return result;
}

struct NotAnException {};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

}  // namespace

TEST_SUITE("launcher") {
  TEST_CASE("spawn: every rank calls the closure with its environment") {
    const SharedCounters seen;
    const int base = 40;
    const auto result = run_spawn(
        [&](const WorkerEnv& env) {
          const bool same = std::to_string(env.rank) == std::getenv("RANK") && env.agent_store &&
                            std::getenv("DDPRUN_JOB") != nullptr;
          seen[env.rank] = same ? base + env.rank + env.world_size : -1;
          return 0;
        },
        4);
    CHECK(result.ok());
    CHECK(result.failures.empty());
    for (int rank = 0; rank < 4; ++rank) CHECK(seen[rank] == 44 + rank);
  }

  TEST_CASE("spawn: the ranks meet in the store that it hosts") {
    const auto train = [](const WorkerEnv& env) {
      const auto store = connect_tcp_store({.host = env.master_addr, .port = env.master_port},
                                           Deadline::after(20s));
      store->set("rank" + std::to_string(env.rank), std::to_string(env.rank));
      return std::stoi(store->get("rank" + std::to_string(1 - env.rank), Deadline::after(20s))) ==
                     1 - env.rank
                 ? 0
                 : 1;
    };
    CHECK(run_spawn(train, 2).exit_code == 0);
  }

  TEST_CASE("spawn: an exception comes back with its type and text") {
    const auto result = run_plainly(
        [](const WorkerEnv& env) -> int {
          if (env.rank == 1) throw std::out_of_range("index 7 of 3");
          wait_for_ever();
        },
        2);
    CHECK(result.exit_code == 1);
    REQUIRE(result.failures.size() == 1);
    CHECK(result.failures[0].rank == 1);
    CHECK(result.failures[0].exception_type == "std::out_of_range");
    CHECK(result.failures[0].exception_text == "index 7 of 3");
    CHECK(count(result.failures[0].stderr_tail, "std::out_of_range: index 7 of 3") == 1);
  }

  TEST_CASE("spawn: what is no exception is caught as well") {
    const auto result = run_spawn([](const WorkerEnv&) -> int { throw NotAnException{}; }, 1);
    CHECK(result.exit_code == 1);
    REQUIRE(result.failures.size() == 1);
    CHECK(count(result.failures[0].exception_type, "NotAnException") == 1);
  }

  TEST_CASE("spawn: an exit code is the job's, and one that would look like success is not 0") {
    CHECK(run_plainly([](const WorkerEnv& env) { return env.rank == 1 ? 12 : 0; }, 2).exit_code ==
          12);
    CHECK(run_plainly([](const WorkerEnv&) { return 256; }, 1).exit_code == 1);
  }

  TEST_CASE("spawn: 8 MiB of what(), half a record and a handler that never returns") {
    const auto start = std::chrono::steady_clock::now();
    const SharedCounters ready;
    const auto result = run_plainly(
        [&](const WorkerEnv& env) -> int {
          if (env.rank == 3) {
            std::signal(SIGTERM, [](int) { wait_for_ever(); });
            ready[0] = 1;
            wait_for_ever();
          }
          while (ready[0] == 0) std::this_thread::yield();
          if (env.rank == 1) throw std::runtime_error(std::string(8 << 20, 'w'));
          if (env.rank == 2) {
            const UniqueFd file(::open(env.error_file.c_str(), O_WRONLY | O_TRUNC));
            if (::write(file.get(), R"({"mess)", 6) < 0) std::abort();
          }
          wait_for_ever();
        },
        4, {.log_dir = {}, .shutdown_timeout = 1s});
    CHECK(std::chrono::steady_clock::now() - start < 10s);
    CHECK(result.exit_code == 1);
    REQUIRE(result.failures.size() == 1);
    CHECK(result.failures[0].rank == 1);
    CHECK(result.failures[0].exception_text.size() < 70'000);
    CHECK(result.failures[0].exception_text.ends_with("[cut: 65536 of 8388608 bytes]"));
  }

  TEST_CASE("spawn: a rank that dies with half a record is reported by its exit code") {
    const auto result = run_spawn(
        [](const WorkerEnv& env) -> int {
          const UniqueFd file(::open(env.error_file.c_str(), O_WRONLY | O_TRUNC));
          if (::write(file.get(), R"({"mess)", 6) < 0) std::abort();
          ::_exit(9);
        },
        1);
    CHECK(result.exit_code == 9);
    REQUIRE(result.failures.size() == 1);
    CHECK(result.failures[0].exception_type.empty());
    CHECK(result.failures[0].status.value == 9);
  }

  TEST_CASE("spawn: ranks hold the caller's descriptors and none of the launcher's") {
    const UniqueFd mine(::open("/dev/null", O_RDONLY));
    const auto before = open_descriptors();
    const SharedCounters extra;
    const auto result = run_spawn(
        [&](const WorkerEnv& env) {
          for (const int fd : open_descriptors())
            if (std::count(before.begin(), before.end(), fd) == 0 && ::fcntl(fd, F_GETFD) >= 0)
              ++extra[env.rank];
          return ::fcntl(mine.get(), F_GETFD) >= 0 ? 0 : 1;
        },
        3);
    CHECK(result.exit_code == 0);
    for (int rank = 0; rank < 3; ++rank) CHECK(extra[rank] == 0);
    CHECK(open_descriptors() == before);
  }

  // The allocators of the sanitizers do not survive a fork beside a thread that allocates.
  TEST_CASE("spawn: threads of the caller are no reason to refuse" * doctest::skip(kSanitized)) {
    std::atomic<bool> stop = false;
    std::thread busy([&] {
      while (!stop) std::free(std::malloc(100));
    });
    for (int round = 0; round < 5; ++round)
      CHECK(run_spawn(
                [](const WorkerEnv&) {
                  std::vector<std::string> strings(1000, std::string(100, 'x'));
                  return strings.size() == 1000 ? 0 : 1;
                },
                2)
                .ok());
    stop = true;
    busy.join();
  }

  TEST_CASE("spawn: beside threads that open and close files, and one that waits for input" *
            doctest::skip(kSanitized)) {
    std::atomic<bool> stop = false;
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&] {
        while (!stop) UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)).reset();
      });
    const auto start = std::chrono::steady_clock::now();
    ::flockfile(stdin);  // as a thread in fgets() does
    for (int round = 0; round < 10; ++round)
      std::thread([] {
        CHECK(run_spawn([](const WorkerEnv&) { return 0; }, 2).exit_code == 0);
      }).join();
    ::funlockfile(stdin);
    stop = true;
    for (std::thread& thread : threads) thread.join();
    CHECK(std::chrono::steady_clock::now() - start < 20s);
  }

  TEST_CASE("spawn: two at once" * doctest::skip(kSanitized)) {
    const auto start = std::chrono::steady_clock::now();
    std::array<int, 2> codes = {-1, -1};
    std::array<std::thread, 2> threads;
    for (std::size_t i = 0; i < threads.size(); ++i)
      threads[i] = std::thread([&codes, i] {
        codes[i] = 0;
        for (int round = 0; round < 4; ++round)
          codes[i] += run_spawn([](const WorkerEnv&) { return 0; }, 2).exit_code;
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(codes == std::array{0, 0});
    CHECK(std::chrono::steady_clock::now() - start < 20s);
  }

  TEST_CASE("spawn: with too few descriptors it works or says so at once") {
    for (rlim_t limit = 12; limit <= 34; ++limit) {
      CAPTURE(limit);
      const auto start = std::chrono::steady_clock::now();
      const pid_t child = ::fork();
      if (child == 0) {
        const rlimit few = {limit, limit};
        ::setrlimit(RLIMIT_NOFILE, &few);
        ::_exit(run_spawn([](const WorkerEnv&) { return 0; }, 2).exit_code);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      REQUIRE(WIFEXITED(status));
      const bool known = WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 75;
      CHECK_MESSAGE(known, "exit code ", WEXITSTATUS(status));
      CHECK(std::chrono::steady_clock::now() - start < 5s);
    }
  }

  TEST_CASE("spawn: from a thread that lives as long as the call") {
    int code = -1;
    std::thread([&] {
      code = run_plainly([](const WorkerEnv&) { return 5; }, 2).exit_code;
    }).join();
    CHECK(code == 5);
  }

  TEST_CASE("spawn: puts the caller's signal handling back") {
    const auto mine = [](int) {};
    const auto old = std::signal(SIGTERM, mine);
    CHECK(run_spawn([](const WorkerEnv&) { return 0; }, 1).ok());
    const bool same = std::signal(SIGTERM, old) == static_cast<void (*)(int)>(mine);
    CHECK(same);
    sigset_t mask;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    CHECK(::sigismember(&mask, SIGTERM) == 0);
  }

  TEST_CASE("spawn: writes log files when asked, and refuses what cannot be") {
    const TempDir dir;
    CHECK(run_spawn(
              [](const WorkerEnv& env) {
                std::printf("rank %d\n", env.rank);  // flushed at the end
                return 0;
              },
              2, {.log_dir = dir.path(), .shutdown_timeout = 1s})
              .ok());
    CHECK(read_file(only_entry(dir.path()) / "attempt_0" / "1" / "stdout.log") == "rank 1\n");
    CHECK_THROWS_WITH_AS(run_spawn([](const WorkerEnv&) { return 0; }, 0),
                         doctest::Contains("nprocs=0"), UsageError);
  }

  TEST_CASE("spawn: the rank that throws is the first failure, though others die of it before") {
    for (int round = 0; round < 10; ++round) {
      CAPTURE(round);
      const RunResult result = run_plainly(
          [](const WorkerEnv& env) {
            struct SlowEnd {  // of what the unwinding destroys after the group
              ~SlowEnd() { std::this_thread::sleep_for(50ms); }
            } const slow_end;
            auto group = init_process_group(env);
            std::vector<float> numbers(8);
            for (;;) {
              group.all_reduce(view(numbers), ReduceOp::sum);
              if (env.rank == 1) throw std::runtime_error("bad device 73");
            }
            return 0;
          },
          3);
      REQUIRE(!result.failures.empty());
      CHECK(result.failures.front().rank == 1);
      CHECK(result.failures.front().exception_text == "bad device 73");
    }
  }
}
