// SPDX-License-Identifier: MIT
// What the other ranks see when a rank's process is killed, stopped, or leaves. Ranks are
// processes.
#include <ddprun/error.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/rank_processes.h"

using namespace ddprun;
using namespace ddprun::test;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

#if defined(__OPTIMIZE__)
constexpr int kRounds = 20;
#else
constexpr int kRounds = 4;
#endif
constexpr std::int64_t kPromisedUs = 2'000'000;
constexpr std::int64_t kUsualUs = 200'000;  // of the median: a busy machine may delay any one
constexpr seconds kPatience(20);
constexpr std::size_t kCount = 20'000;
constexpr uid_t kNobody = 65534;

// Every way of all_reduce in turn, for ever; "ready" once all have worked.
void reduce_for_ever(ProcessGroup& group, const Voice& voice) {
  const auto shared = group.allocate(kCount * sizeof(float));
  auto* const in_place = reinterpret_cast<float*>(shared.get());
  std::vector<float> ordinary(kCount);
  for (int step = 0;; ++step) {
    group.all_reduce({in_place, kCount, DType::f32, {}}, ReduceOp::max);
    group.all_reduce(view(ordinary), ReduceOp::max);
    group.mean(1.0);
    group.broadcast(view(ordinary), step % group.size());
    if (step == 3) voice.say("ready");
  }
}

std::size_t entries_in(const char* folder) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    static_cast<void>(entry);
    ++count;
  }
  return count;
}

}  // namespace

TEST_SUITE("collectives") {
  TEST_CASE("ProcessGroup: a killed rank is named by all others soon, and nothing is left of it") {
    const auto before = entries_in("/dev/shm");
    std::vector<std::int64_t> noticed_us;
    for (int round = 0; round < kRounds; ++round) {
      const int n = 2 + round % 3;
      const int victim = round % n;
      RankProcesses ranks(n, kPatience, reduce_for_ever);
      for (int r = 0; r < n; ++r) CHECK(ranks.hear(r, Deadline::after(kPatience)) == "ready");
      const auto killed = now_us();
      ranks.signal(victim, SIGKILL);
      for (int r = 0; r < n; ++r) {
        if (r == victim) continue;
        const auto failure = Failure::parse(ranks.hear(r, Deadline::after(kPatience)));
        CHECK(failure.type == "RemoteError");
        CHECK_MESSAGE(failure.rank == victim, failure.text);
        CHECK(failure.text.find("has ended") != std::string::npos);
        CHECK(failure.at_us - killed < kPromisedUs);
        noticed_us.push_back(failure.at_us - killed);
      }
    }
    const auto middle = noticed_us.begin() + static_cast<std::ptrdiff_t>(noticed_us.size() / 2);
    std::nth_element(noticed_us.begin(), middle, noticed_us.end());
    CHECK(*middle < kUsualUs);
    CHECK(entries_in("/dev/shm") == before);
  }

  TEST_CASE("ProcessGroup: a rank killed while it computes is named, in every pending Work") {
    RankProcesses ranks(3, kPatience, [](ProcessGroup& group, const Voice& voice) {
      std::vector<float> data(kCount);
      group.barrier();
      voice.say("ready");
      if (group.rank() == 1) voice.say("computing"), ::pause();
      std::vector<Work> works;
      for (int i = 0; i < 3; ++i)
        works.push_back(group.all_reduce(view(data), ReduceOp::sum, {}, true));
      for (const Work& work : works) voice.say(failure_of([&] { work.wait(); }).line());
      voice.say(failure_of([&] { group.barrier(); }).line());
    });
    for (int r = 0; r < 3; ++r) CHECK(ranks.hear(r, Deadline::after(kPatience)) == "ready");
    CHECK(ranks.hear(1, Deadline::after(kPatience)) == "computing");
    CHECK(ranks.silent_for(milliseconds(300)));
    const auto killed = now_us();
    ranks.signal(1, SIGKILL);
    for (const int r : {0, 2}) {
      std::string first;
      for (int i = 0; i < 4; ++i) {
        const auto failure = Failure::parse(ranks.hear(r, Deadline::after(kPatience)));
        CHECK(failure.type == "RemoteError");
        CHECK(failure.rank == 1);
        CHECK(failure.at_us - killed < kPromisedUs);
        if (i == 0) first = failure.text;
        CHECK(failure.text == first);
      }
    }
  }

  TEST_CASE("ProcessGroup: a stopped rank is named at the deadline by all others") {
    const milliseconds timeout(1500);
    RankProcesses ranks(4, timeout, reduce_for_ever);
    for (int r = 0; r < 4; ++r) CHECK(ranks.hear(r, Deadline::after(kPatience)) == "ready");
    const auto stopped = now_us();
    ranks.signal(2, SIGSTOP);
    for (const int r : {0, 1, 3}) {
      const auto failure = Failure::parse(ranks.hear(r, Deadline::after(kPatience)));
      CHECK(failure.type == "TimeoutError");
      CHECK_MESSAGE(failure.text.find("rank 2 has not arrived within 1500 ms") != std::string::npos,
                    failure.text);
      CHECK(failure.at_us - stopped > 1'000'000);
      CHECK(failure.at_us - stopped < 1'500'000 + kPromisedUs);
    }
    ranks.signal(2, SIGCONT);
    const auto failure = Failure::parse(ranks.hear(2, Deadline::after(kPatience)));
    CHECK(failure.type == "TimeoutError");
    CHECK_MESSAGE(failure.text.find("the other ranks gave up waiting for this rank after") !=
                      std::string::npos,
                  failure.text);
  }

  TEST_CASE("ProcessGroup: a rank stopped for less than the deadline costs time, not the sum") {
    RankProcesses ranks(4, kPatience, [](ProcessGroup& group, const Voice& voice) {
      std::vector<double> data(kCount);
      for (int step = 0;; ++step) {
        for (std::size_t i = 0; i < kCount; ++i) data[i] = double(step + group.rank());
        group.all_reduce(view(data));
        for (const double value : data)
          if (value != 4.0 * step + 6) throw Error("wrong sum in step " + std::to_string(step));
        if (step % 64 == 0) voice.say("step");
      }
    });
    for (int r = 0; r < 4; ++r) CHECK(ranks.hear(r, Deadline::after(kPatience)) == "step");
    ranks.signal(2, SIGSTOP);
    while (!ranks.silent_for(milliseconds(300)))
      for (int r = 0; r < 4; ++r)
        while (ranks.said_something(r))
          REQUIRE(ranks.hear(r, Deadline::after(kPatience)) == "step");
    CHECK(ranks.silent_for(milliseconds(700)));
    ranks.signal(2, SIGCONT);
    for (int i = 0; i < 3; ++i)
      for (int r = 0; r < 4; ++r) CHECK(ranks.hear(r, Deadline::after(kPatience)) == "step");
  }

  TEST_CASE("ProcessGroup: a rank that ends in order without the barrier has left") {
    for (int round = 0; round < kRounds; ++round) {
      const int leaver = round % 4;
      RankProcesses ranks(4, kPatience, [leaver](ProcessGroup& group, const Voice&) {
        std::vector<float> data(3);
        group.all_reduce(view(data));
        if (group.rank() == leaver) return;
        group.barrier();
      });
      for (int r = 0; r < 4; ++r) {
        if (r == leaver) {
          CHECK(ranks.hear(r, Deadline::after(kPatience)).empty());
          CHECK(ranks.wait(r) == 0);
          continue;
        }
        const auto failure = Failure::parse(ranks.hear(r, Deadline::after(kPatience)));
        CHECK(failure.type == "RemoteError");
        CHECK_MESSAGE(failure.rank == leaver, failure.text);
        CHECK_MESSAGE(failure.text.find("has left the group") != std::string::npos, failure.text);
      }
    }
  }

  TEST_CASE("ProcessGroup: a forked child that ends with a copy of the group disturbs nobody") {
    RankProcesses ranks(2, kPatience, [](ProcessGroup& group, const Voice& voice) {
      const pid_t child = ::fork();
      if (child == 0) {
        { const ProcessGroup copy = std::move(group); }
        ::_exit(0);
      }
      int status = -1;
      ::waitpid(child, &status, 0);
      voice.say(std::to_string(status) + " " + std::to_string(group.mean(group.rank())));
    });
    for (int r = 0; r < 2; ++r) {
      CHECK(ranks.hear(r, Deadline::after(kPatience)) == "0 0.500000");
      CHECK(ranks.wait(r) == 0);
    }
  }

  TEST_CASE("ProcessGroup: a forked child is refused every operation, and its parent goes on") {
    int child_done[2];
    REQUIRE(::pipe2(child_done, O_CLOEXEC) == 0);
    const UniqueFd reading(child_done[0]), writing(child_done[1]);
    RankProcesses ranks(2, kPatience, [&](ProcessGroup& group, const Voice& voice) {
      std::vector<float> data(kCount, 1.0f);
      group.all_reduce(view(data));
      Work pending;
      if (group.rank() == 1) pending = group.all_reduce(view(data), ReduceOp::sum, {}, true);
      const pid_t child = group.rank() == 1 ? ::fork() : 0;
      if (group.rank() == 1 && child == 0) {
        std::vector<float> other(kCount, 1000.0f);
        const std::vector<std::pair<std::string, std::function<void()>>> calls{
            {"all_reduce", [&] { group.all_reduce(view(other)); }},
            {"all_reduce", [&] { group.all_reduce(view(other), ReduceOp::sum, {}, true); }},
            {"all_reduce", [&] { group.mean(1); }},
            {"broadcast", [&] { group.broadcast(view(other), 0); }},
            {"barrier", [&] { group.barrier(); }},
            {"allocate", [&] { group.allocate(8); }},
            {"abort", [&] { group.abort("child"); }},
            {"[work] wait", [&] { pending.wait(); }},
        };
        for (const auto& [name, call] : calls) {
          const auto failure = failure_of(call);
          if (failure.text.find(name) == std::string::npos ||
              failure.text.find("was forked from") == std::string::npos)
            voice.say(name + " in the child: " + failure.text);
        }
        const pid_t grandchild = ::fork();
        if (grandchild == 0) ::_exit(failure_of([&] { group.barrier(); }).type == "none" ? 1 : 0);
        int status = -1;
        ::waitpid(grandchild, &status, 0);
        ::_exit(status == 0 && group.rank() == 1 ? 0 : 1);
      }
      int status = -1;
      char byte = 0;
      if (group.rank() == 1) {
        ::waitpid(child, &status, 0);
        voice.say("child " + std::to_string(status));
        static_cast<void>(::write(writing.get(), &byte, 1) == 1);
      } else {
        static_cast<void>(::read(reading.get(), &byte, 1) == 1);
        group.all_reduce(view(data));
        voice.say("child 0");
      }
      pending.wait();
      std::vector<float> after(kCount, 1.0f + static_cast<float>(group.rank()));
      group.all_reduce(view(after));
      voice.say(std::to_string(data[0]) + " " + std::to_string(after[kCount - 1]));
    });
    for (int r = 0; r < 2; ++r) {
      CHECK(ranks.hear(r, Deadline::after(kPatience)) == "child 0");
      CHECK(ranks.hear(r, Deadline::after(kPatience)) == "4.000000 3.000000");
    }
  }

  TEST_CASE("ProcessGroup: more memory may be on its way than a user's limit on descriptors") {
    constexpr int kRanks = 40;
    const auto as_user = [](int) {
      const rlimit few{256,
                       256};  // enough for a rank itself, not for 40 x 39 descriptors on their way
      if (::setrlimit(RLIMIT_NOFILE, &few) != 0) throw Error("setrlimit");
      if (::geteuid() == 0 && ::setresuid(kNobody, kNobody, kNobody) != 0) throw Error("setresuid");
    };
    const auto use = [](ProcessGroup& group, const Voice& voice) {
      group.allocate(100);
      voice.say(std::to_string(group.mean(group.rank())));
      group.barrier();
    };
    RankProcesses ranks(kRanks, kPatience, use, as_user);
    for (int r = 0; r < kRanks; ++r)
      CHECK(ranks.hear(r, Deadline::after(kPatience)) == std::to_string((kRanks - 1) / 2.0));
  }

  TEST_CASE("ProcessGroup: a rank that has no memory for the group is named with it by all") {
    const auto small_files = [](int rank) {
      if (rank != 0) return;
      std::signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{512 * 1024, 512 * 1024};  // the page fits, the slots do not
      if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) throw Error("setrlimit");
    };
    for (int round = 0; round < kRounds; ++round) {
      RankProcesses ranks(
          4, kPatience, [](ProcessGroup&, const Voice&) {}, small_files);
      CHECK(ranks.hear(0, Deadline::after(kPatience)).find("File too large") != std::string::npos);
      for (const int r : {1, 2, 3}) {
        const auto failure = Failure::parse(ranks.hear(r, Deadline::after(kPatience)));
        CHECK_MESSAGE(failure.rank == 0, failure.text);
        CHECK_MESSAGE(failure.text.find("set-up: rank 0 failed: ") != std::string::npos,
                      failure.text);
        CHECK_MESSAGE(failure.text.find("File too large") != std::string::npos, failure.text);
      }
    }
  }

  TEST_CASE("ProcessGroup: ranks that end after the last operation disturb nobody") {
    for (int round = 0; round < kRounds; ++round) {
      RankProcesses ranks(4, kPatience, [](ProcessGroup& group, const Voice& voice) {
        std::vector<float> data(kCount, 1.0f);
        group.all_reduce(view(data));
        group.broadcast(view(data), 0);
        voice.say("done");
        if (group.rank() == 1) ::_exit(0);  // not even destroys it
      });
      for (int r = 0; r < 4; ++r) {
        CHECK(ranks.hear(r, Deadline::after(kPatience)) == "done");
        CHECK(ranks.hear(r, Deadline::after(kPatience)).empty());
      }
    }
  }
}
