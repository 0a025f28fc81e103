// SPDX-License-Identifier: MIT
// What every rank sees when one of them fails in an operation on GPU memory. Ranks are processes
// over the doubles of CUDA and NCCL, which are told what to do wrong.
#include <ddprun/cuda.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/gpu_rank_processes.h"

using namespace ddprun;
using namespace ddprun::test;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

/// Rank `culprit` fails with `type`, all others with RemoteError and its rank.
void check_culprit(RankProcesses& ranks, int n, int culprit, const std::string& type,
                   const std::string& text) {
  for (int r = 0; r < n; ++r) {
    const auto failure = failure_from(ranks, r);
    CHECK_MESSAGE(failure.type == (r == culprit ? type : "RemoteError"), failure.text);
    if (r != culprit) CHECK_MESSAGE(failure.rank == culprit, failure.text);
    CHECK_MESSAGE(contains(failure.text, text), failure.text);
  }
}

void kill_one(const Faults& faults) {
  constexpr int kVictim = 1;
  auto ranks = gpu_ranks(4, kPatience, faults, reduce_for_ever);
  for (int r = 0; r < 4; ++r) CHECK(ranks.hear(r, Deadline::after(kPatience)) == "ready");
  const auto killed = now_us();
  ranks.signal(kVictim, SIGKILL);
  for (const int r : {0, 2, 3}) {
    const auto failure = failure_from(ranks, r);
    CHECK_MESSAGE(failure.type == "RemoteError", failure.text);
    CHECK_MESSAGE(failure.rank == kVictim, failure.text);
    CHECK_MESSAGE(contains(failure.text, "has ended"), failure.text);
    CHECK(failure.at_us - killed < kPromisedUs);
    CHECK(ranks.wait(r) != 0);
  }
}

/// How often a thread, a folder of /proc, has slept.
std::int64_t sleeps_of(const std::filesystem::path& thread) {
  std::ifstream status(thread / "status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("voluntary_ctxt_switches:", 0) == 0) return std::stoll(line.substr(24));
  return -1;
}

std::int64_t wake_ups_of(const std::string& thread_name) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name == thread_name) return sleeps_of(task.path());
  }
  return -1;
}

}  // namespace

TEST_SUITE("contract") {
  TEST_CASE("NcclBackend: a rank that never joins the set-up lets all time out") {
    auto ranks =
        gpu_ranks(3, kShort, {{"FAKE_NCCL_FAULTS", "rank=1,call=ncclCommInitRank,do=never"}},
                  reduce_for_ever);
    const auto started = now_us();
    for (int r = 0; r < 3; ++r) {
      const auto failure = failure_from(ranks, r);
      CHECK_MESSAGE(failure.type == "TimeoutError", failure.text);
      CHECK_MESSAGE(contains(failure.text, "set-up"), failure.text);
      CHECK_MESSAGE(contains(failure.text, "1500 ms"), failure.text);
      CHECK(failure.at_us - started < 1'500'000 + kPromisedUs);
    }
  }

  TEST_CASE("NcclBackend: a connection that does not come about fails the set-up") {
    auto ranks =
        gpu_ranks(2, kShort, {{"FAKE_NCCL_FAULTS", "rank=1,call=ncclAllReduce,nth=1,do=hang"}},
                  [](ProcessGroup&, const Voice& voice) { voice.say("joined"); });
    for (int r = 0; r < 2; ++r) {
      const auto failure = failure_from(ranks, r);
      CHECK_MESSAGE(failure.type == "TimeoutError", failure.text);
      CHECK_MESSAGE(contains(failure.text, "set-up: all ranks have joined, but"), failure.text);
      CHECK_MESSAGE(contains(failure.text, "1500 ms"), failure.text);
    }
  }

  TEST_CASE("NcclBackend: a rank that dies while GPUs connect is named") {
    auto ranks =
        gpu_ranks(3, kPatience, {{"FAKE_NCCL_FAULTS", "rank=1,call=ncclAllReduce,nth=1,do=kill"}},
                  [](ProcessGroup&, const Voice& voice) { voice.say("joined"); });
    for (const int r : {0, 2}) {
      const auto failure = failure_from(ranks, r);
      CHECK_MESSAGE(failure.type == "RemoteError", failure.text);
      CHECK_MESSAGE(failure.rank == 1, failure.text);
    }
  }

  TEST_CASE("NcclBackend: a rank that dies in the set-up is named") {
    auto ranks =
        gpu_ranks(3, kPatience, {{"FAKE_NCCL_FAULTS", "rank=1,call=ncclCommInitRank,do=never"}},
                  reduce_for_ever);
    CHECK(ranks.silent_for(milliseconds(500)));
    ranks.signal(1, SIGKILL);
    for (const int r : {0, 2}) {
      const auto failure = failure_from(ranks, r);
      CHECK_MESSAGE(failure.type == "RemoteError", failure.text);
      CHECK_MESSAGE(failure.rank == 1, failure.text);
    }
  }

  TEST_CASE("NcclBackend: an operation that hangs times out on all ranks") {
    auto ranks =
        gpu_ranks(4, kShort, {{"FAKE_NCCL_FAULTS", "rank=1,call=ncclAllReduce,nth=4,do=hang"}},
                  reduce_for_ever);
    for (int r = 0; r < 4; ++r) {
      const auto failure = failure_from(ranks, r);
      CHECK_MESSAGE(failure.type == "TimeoutError", failure.text);
      CHECK_MESSAGE(contains(failure.text, "all ranks have begun it"), failure.text);
      CHECK_MESSAGE(contains(failure.text, "all_reduce #4"), failure.text);  // #1 allocates
    }
  }

  TEST_CASE("NcclBackend: an asynchronous error of one rank reaches all") {
    auto ranks = gpu_ranks(4, kPatience,
                           {{"FAKE_NCCL_FAULTS", "rank=1,call=ncclAllReduce,nth=4,do=async:6"}},
                           reduce_for_ever);
    check_culprit(ranks, 4, 1, "DeviceError", "NCCL_SOCKET_IFNAME");
  }

  TEST_CASE("NcclBackend: a call that NCCL refuses fails all ranks") {
    auto ranks =
        gpu_ranks(4, kPatience, {{"FAKE_NCCL_FAULTS", "rank=2,call=ncclAllReduce,nth=4,do=ret:3"}},
                  reduce_for_ever);
    check_culprit(ranks, 4, 2, "DeviceError", "all_reduce #4: rank 2: [nccl] ncclAllReduce");
  }

  TEST_CASE("NcclBackend: a killed rank is named when NCCL notices") { kill_one({}); }

  TEST_CASE("NcclBackend: a killed rank is named when NCCL does not notice") {
    kill_one({{"FAKE_NCCL_PEERWATCH", "0"}});
  }

  TEST_CASE("NcclBackend: a slow rank is no failure") {
    auto ranks =
        gpu_ranks(2, kShort, {{"FAKE_NCCL_FAULTS", "rank=1,call=ncclAllReduce,nth=*,do=delay:100"}},
                  [](ProcessGroup& group, const Voice& voice) {
                    Buffer buffer(group);
                    for (int i = 0; i < 20; ++i) reduce(group, buffer);
                    voice.say("done");
                  });
    for (int r = 0; r < 2; ++r) {
      CHECK(ranks.hear(r, Deadline::after(kPatience)) == "done");
      CHECK(ranks.wait(r) == 0);
    }
  }

  TEST_CASE("NcclBackend: a rank without memory is named by all") {
    RankProcesses ranks(
        3, kPatience, reduce_for_ever,
        [&](int rank) {
          if (rank == 1) ::setenv("FAKE_CUDA_FAULTS", "call=cudaMalloc,nth=2,err=2", 1);
        },
        "nccl");
    check_culprit(ranks, 3, 1, "DeviceError", "cudaMalloc of 4000 bytes on cuda:1");
  }

  TEST_CASE("NcclBackend: an error that CUDA keeps is that of its rank") {
    RankProcesses ranks(
        3, kPatience, reduce_for_ever,
        [](int rank) {
          if (rank == 1)
            ::setenv("FAKE_CUDA_FAULTS", "call=cudaEventRecord,nth=8,err=700,sticky=1", 1);
        },
        "nccl");
    check_culprit(ranks, 3, 1, "DeviceError", "all_reduce #4: rank 1: [cuda] cudaEventRecord");
  }

  TEST_CASE("NcclBackend: who leaves is named by those who wait for it") {
    auto ranks = gpu_ranks(3, kPatience, {}, [](ProcessGroup& group, const Voice& voice) {
      Buffer buffer(group);
      reduce(group, buffer);
      voice.say("reduced");
      if (group.rank() == 1) return;
      reduce(group, buffer);
    });
    for (int r = 0; r < 3; ++r) CHECK(ranks.hear(r, Deadline::after(kPatience)) == "reduced");
    const auto left = now_us();
    for (const int r : {0, 2}) {
      const auto failure = failure_from(ranks, r);
      CHECK_MESSAGE(failure.type == "RemoteError", failure.text);
      CHECK_MESSAGE(failure.rank == 1, failure.text);
      CHECK_MESSAGE(contains(failure.text, "has left the group"), failure.text);
      CHECK(failure.at_us - left < kPromisedUs);
    }
    CHECK(ranks.wait(1) == 0);
  }

  TEST_CASE("NcclBackend: abort fails what is pending on all ranks with its reason") {
    auto ranks = gpu_ranks(3, kPatience, {}, [](ProcessGroup& group, const Voice& voice) {
      Buffer buffer(group);
      if (group.rank() == 1) {
        voice.say("aborting");
        group.abort("the loss is not a number");
      }
      reduce(group, buffer);
    });
    CHECK(ranks.hear(1, Deadline::after(kPatience)) == "aborting");
    const auto aborted = now_us();
    for (int r = 0; r < 3; ++r) {
      const auto failure = failure_from(ranks, r);
      CHECK_MESSAGE(failure.type == (r == 1 ? "Error" : "RemoteError"), failure.text);
      if (r != 1) CHECK(failure.rank == 1);
      CHECK_MESSAGE(contains(failure.text, "the loss is not a number"), failure.text);
      CHECK(failure.at_us - aborted < kPromisedUs);
    }
  }

  TEST_CASE("NcclBackend: a rank that does not come is named with the last it has done") {
    auto ranks = gpu_ranks(3, kShort, {}, [](ProcessGroup& group, const Voice& voice) {
      Buffer buffer(group);
      reduce(group, buffer);
      if (group.rank() == 2) voice.say("computing"), ::pause();
      reduce(group, buffer);
    });
    for (const int r : {0, 1}) {
      const auto failure = failure_from(ranks, r);
      CHECK_MESSAGE(failure.type == "TimeoutError", failure.text);
      CHECK_MESSAGE(contains(failure.text,
                             "all_reduce #3: not reached within 1500 ms by rank 2 "
                             "(whose last is all_reduce #2)"),
                    failure.text);
    }
  }

  TEST_CASE("NcclBackend: a stopped rank is named at the deadline") {
    auto ranks = gpu_ranks(3, kShort, {}, reduce_for_ever);
    for (int r = 0; r < 3; ++r) CHECK(ranks.hear(r, Deadline::after(kPatience)) == "ready");
    ranks.signal(1, SIGSTOP);
    for (const int r : {0, 2}) {
      const auto failure = failure_from(ranks, r);
      CHECK_MESSAGE(failure.type == "TimeoutError", failure.text);
      CHECK_MESSAGE(contains(failure.text, "rank 1 ("), failure.text);
    }
  }

  TEST_CASE("NcclBackend: a failure in CPU memory fails operations on GPUs") {
    auto ranks = gpu_ranks(3, kPatience, {}, [](ProcessGroup& group, const Voice&) {
      Buffer buffer(group);
      std::vector<float> host(group.rank() == 1 ? 4 : 3);
      const Work on_cpu = group.all_reduce(view(host), ReduceOp::sum, {}, true);
      if (group.rank() != 2) on_cpu.wait();
      reduce(group, buffer);
    });
    check_culprit(ranks, 3, 1, "RemoteError", "rank 1");
  }

  TEST_CASE("NcclBackend: a failure on a GPU fails operations in CPU memory") {
    auto ranks = gpu_ranks(3, kPatience,
                           {{"FAKE_NCCL_FAULTS", "rank=1,call=ncclAllReduce,nth=2,do=async:3"}},
                           [](ProcessGroup& group, const Voice&) {
                             Buffer buffer(group);
                             if (group.rank() == 2) group.mean(1);
                             reduce(group, buffer);
                           });
    check_culprit(ranks, 3, 1, "DeviceError", "asynchronous error");
  }

  TEST_CASE("NcclBackend: the deadline of a wait ends the wait only") {
    auto ranks = gpu_ranks(
        2, kPatience, {{"FAKE_NCCL_FAULTS", "rank=1,call=ncclAllReduce,nth=2,do=delay:300"}},
        [](ProcessGroup& group, const Voice& voice) {
          Buffer buffer(group);
          const Work work = group.all_reduce(buffer.view, ReduceOp::sum, buffer.stream.get(), true);
          voice.say(failure_of([&] { work.wait(Deadline::after(milliseconds(20))); }).line());
          work.wait();
          voice.say("done");
        });
    for (int r = 0; r < 2; ++r) {
      CHECK(failure_from(ranks, r).type == "TimeoutError");
      CHECK(ranks.hear(r, Deadline::after(kPatience)) == "done");
    }
  }

  TEST_CASE("NcclBackend: every later operation fails with the text of the first failure") {
    auto ranks = gpu_ranks(
        2, kPatience, {{"FAKE_NCCL_FAULTS", "rank=1,call=ncclAllReduce,nth=2,do=async:3"}},
        [](ProcessGroup& group, const Voice& voice) {
          // Not by group.allocate(), which the other rank's failure may reach.
          Buffer buffer(group, cuda::allocate(kNumel * sizeof(float), group.device().index));
          for (int i = 0; i < 3; ++i) voice.say(failure_of([&] { reduce(group, buffer); }).line());
          voice.say(failure_of([&] { group.barrier(); }).line());
          voice.say(failure_of([&] { group.allocate(8, group.device()); }).line());
        });
    for (int r = 0; r < 2; ++r) {
      const auto first = failure_from(ranks, r);
      CHECK(first.type == (r == 1 ? "DeviceError" : "RemoteError"));
      for (int i = 0; i < 4; ++i) {
        const auto later = failure_from(ranks, r);
        CHECK(later.type == first.type);
        CHECK(later.text == first.text);
      }
    }
  }

  TEST_CASE("NcclBackend: nothing wakes up while nothing is under way") {
    auto ranks = gpu_ranks(2, kPatience, {}, [](ProcessGroup& group, const Voice& voice) {
      Buffer buffer(group);
      reduce(group, buffer);
      // A watchdog that looks every 20 ms never has such a window; one that goes to rest soon does.
      long woken = -1;
      for (const auto end = Deadline::after(kPatience / 2); woken != 0 && !end.expired();) {
        const auto before = wake_ups_of("nccl-watchdog");
        std::this_thread::sleep_for(milliseconds(500));
        woken = before < 0 ? -1 : static_cast<long>(wake_ups_of("nccl-watchdog") - before);
      }
      voice.say(std::to_string(woken));
      group.barrier();
    });
    for (int r = 0; r < 2; ++r) CHECK(ranks.hear(r, Deadline::after(kPatience)) == "0");
  }

  TEST_CASE("NcclBackend: a group destroyed by an exception is left at once") {
    auto ranks = gpu_ranks(2, kPatience, {}, [](ProcessGroup& group, const Voice& voice) {
      Buffer buffer(group);
      const Work work = group.rank() == 0 ? group.all_reduce(buffer.view, ReduceOp::sum,
                                                             buffer.stream.get(), true)
                                          : Work();
      voice.say("called");
      if (group.rank() == 0) throw UsageError("of the program");
      reduce(group, buffer);
      reduce(group, buffer);
    });
    for (int r = 0; r < 2; ++r) CHECK(ranks.hear(r, Deadline::after(kPatience)) == "called");
    CHECK(contains(failure_from(ranks, 0).text, "of the program"));
    const auto failure = failure_from(ranks, 1);
    CHECK_MESSAGE(failure.type == "RemoteError", failure.text);
    CHECK_MESSAGE(failure.rank == 0, failure.text);
    CHECK_MESSAGE(contains(failure.text, "has left the group"), failure.text);
  }

  TEST_CASE("NcclBackend: an abort that hangs delays neither the failure nor the end for long") {
    auto ranks = gpu_ranks(3, kPatience,
                           {{"FAKE_NCCL_FAULTS",
                             "rank=1,call=ncclAllReduce,nth=4,do=async:3;"
                             "rank=*,call=ncclCommAbort,nth=*,do=abort_hang"}},
                           [](ProcessGroup& group, const Voice& voice) {
                             Buffer buffer(group);
                             voice.say(failure_of([&] {
                                         for (;;) reduce(group, buffer);
                                       }).line());
                           });
    const auto started = now_us();
    check_culprit(ranks, 3, 1, "DeviceError", "asynchronous error");
    CHECK(now_us() - started < kPromisedUs);
    for (int r = 0; r < 3; ++r) {
      CHECK(ranks.hear(r, Deadline::after(kPatience)).empty());
      CHECK(WIFEXITED(ranks.wait(r)));
    }
  }

  TEST_CASE("NcclBackend: calls that answer in progress are seen through") {
    auto ranks = gpu_ranks(
        2, kPatience, {{"FAKE_NCCL_FAULTS", "rank=*,call=ncclAllReduce,nth=*,do=inprogress:5"}},
        [](ProcessGroup& group, const Voice& voice) {
          Buffer buffer(group);
          for (int i = 0; i < 5; ++i) reduce(group, buffer);
          voice.say("done");
        });
    for (int r = 0; r < 2; ++r) CHECK(ranks.hear(r, Deadline::after(kPatience)) == "done");
  }

  TEST_CASE("NcclBackend: the host does not sleep for calls that are done when it asks") {
    auto ranks = gpu_ranks(
        2, kPatience, {{"FAKE_NCCL_FAULTS", "rank=*,call=ncclAllReduce,nth=*,do=inprogress:0"}},
        [](ProcessGroup& group, const Voice& voice) {
          Buffer buffer(group);
          int without_sleep = 0;  // all of them where the machine has nothing else to do
          for (int i = 0; i < 100; ++i) {
            const auto before = sleeps_of("/proc/thread-self");
            const Work work =
                group.all_reduce(buffer.view, ReduceOp::sum, buffer.stream.get(), true);
            without_sleep += sleeps_of("/proc/thread-self") == before;
            work.wait();
          }
          voice.say(without_sleep > 0 ? "done" : "it slept each time");
        });
    for (int r = 0; r < 2; ++r) CHECK(ranks.hear(r, Deadline::after(kPatience)) == "done");
  }

  TEST_CASE("NcclBackend: a set-up that blocks is good for operations") {
    auto ranks = gpu_ranks(2, kPatience, {{"NCCL_COMM_BLOCKING", "1"}},
                           [](ProcessGroup& group, const Voice& voice) {
                             Buffer buffer(group);
                             reduce(group, buffer);
                             voice.say("done");
                           });
    for (int r = 0; r < 2; ++r) CHECK(ranks.hear(r, Deadline::after(kPatience)) == "done");
  }

  TEST_CASE("NcclBackend: a call that blocks is not aborted while it is under way") {
    constexpr int kAborted = 7;
    auto ranks = gpu_ranks(2, kShort,
                           {{"NCCL_COMM_BLOCKING", "1"},
                            {"FAKE_NCCL_FAULTS",
                             "rank=0,call=ncclAllReduce,nth=4,do=inprogress:8000;"
                             "rank=0,call=ncclCommAbort,do=exit:7"}},
                           reduce_for_ever);
    for (int r = 0; r < 2; ++r) {
      const auto failure = failure_from(ranks, r);
      CHECK_MESSAGE(failure.type == "TimeoutError", failure.text);
    }
    const int status = ranks.wait(0);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) != kAborted));
  }

  TEST_CASE("NcclBackend: a set-up that blocks has a deadline") {
    auto ranks = gpu_ranks(2, kShort,
                           {{"NCCL_COMM_BLOCKING", "1"},
                            {"FAKE_NCCL_FAULTS", "rank=1,call=ncclCommInitRank,do=never"}},
                           reduce_for_ever);
    for (int r = 0; r < 2; ++r) {
      const auto failure = failure_from(ranks, r);
      CHECK_MESSAGE(failure.type == "TimeoutError", failure.text);
    }
  }
}
