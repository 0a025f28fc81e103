// SPDX-License-Identifier: MIT
// Who is blamed when NCCL, the store or the machine does not say whose failure it is, and what a
// rank does that has nobody left to tell.
#include <ddprun/cuda.h>
#include <ddprun/tcp_store.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include <doctest/doctest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/socket.h"
#include "store/tcp_store_server.h"
#include "support/gpu_rank_processes.h"
#include "support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::test;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

/// As a server that is stopped: no call is answered, and each fails after `patience`.
class SilentStore final : public Store {
 public:
  SilentStore(std::shared_ptr<Store> store, milliseconds patience)
      : store_(std::move(store)), patience_(patience) {}
  void fall_silent() { silent_ = true; }

  void set(std::string_view key, std::string_view value) override { answering().set(key, value); }
  std::string get(std::string_view key, Deadline deadline) override {
    return answering().get(key, deadline);
  }
  std::optional<std::string> try_get(std::string_view key) override {
    return answering().try_get(key);
  }
  std::int64_t add(std::string_view key, std::int64_t delta) override {
    return answering().add(key, delta);
  }
  std::string compare_set(std::string_view key, std::string_view expected,
                          std::string_view desired) override {
    return answering().compare_set(key, expected, desired);
  }
  void append(std::string_view key, std::string_view tail) override {
    answering().append(key, tail);
  }
  bool erase(std::string_view key) override { return answering().erase(key); }
  bool check(std::span<const std::string> keys) override { return answering().check(keys); }
  void wait(std::span<const std::string> keys, Deadline deadline) override {
    answering().wait(keys, deadline);
  }
  std::vector<std::string> multi_get(std::span<const std::string> keys,
                                     Deadline deadline) override {
    return answering().multi_get(keys, deadline);
  }
  void multi_set(std::span<const std::pair<std::string, std::string>> entries) override {
    answering().multi_set(entries);
  }
  std::int64_t num_keys() override { return answering().num_keys(); }

 private:
  Store& answering() {
    if (!silent_) return *store_;
    std::this_thread::sleep_for(patience_);
    throw TimeoutError("the store does not answer");
  }

  std::shared_ptr<Store> store_;
  milliseconds patience_;
  std::atomic<bool> silent_{false};
};

/// A store in the process of rank 0, which tells the others its port.
std::shared_ptr<Store> store_of_rank_0(ProcessGroup& group,
                                       std::unique_ptr<TcpStoreServer>& server) {
  std::int32_t port = 0;
  if (group.rank() == 0) {
    UniqueFd listener = listen_tcp("127.0.0.1", 0);
    port = local_port(listener.get());
    server = std::make_unique<TcpStoreServer>(std::move(listener));
  }
  group.broadcast({&port, 1, DType::i32}, 0);
  return connect_tcp_store({.host = "127.0.0.1", .port = static_cast<std::uint16_t>(port)},
                           Deadline::after(kPatience));
}

/// Ranks that make a group of their own in a store of theirs.
RankProcesses cpu_ranks(int n, const RankProcesses::Fn& fn) {
  return {n, kPatience, fn, [](int) {}, "cpu"};
}

/// From now on this process gets no more threads.
void deny_threads() {
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, std::size_t{1} << 47);
  ::pthread_setattr_default_np(&attributes);
}

/// What fn and the end of the group log.
std::string log_of(ProcessGroup& group, const std::function<void(ProcessGroup&)>& fn) {
  const TempDir folder;
  const auto path = folder.path() / "log";
  if (std::freopen(path.c_str(), "w", stderr) == nullptr) return "no log";
  {
    ProcessGroup own(std::move(group));
    fn(own);
  }
  std::fflush(stderr);
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  std::string line = text.str();
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

}  // namespace

TEST_SUITE("contract") {
  TEST_CASE("NcclBackend: who goes on calling blames the rank that was killed") {
    for (int round = 0; round < 5; ++round) {
      auto ranks = gpu_ranks(4, kPatience, {}, [](ProcessGroup& group, const Voice& voice) {
        Buffer buffer(group);
        for (int step = 0;; ++step) {
          start_reduce(group, buffer).wait_on(buffer.stream.get());
          if (step % 50 == 0) buffer.stream.finish();
          if (step == 100) voice.say("ready");
        }
      });
      for (int r = 0; r < 4; ++r) CHECK(ranks.hear(r, Deadline::after(kPatience)) == "ready");
      ranks.signal(1, SIGKILL);
      for (const int r : {0, 2, 3}) {
        const auto failure = failure_from(ranks, r);
        CHECK_MESSAGE(failure.type == "RemoteError", failure.text);
        CHECK_MESSAGE(failure.rank == 1, failure.text);
      }
    }
  }

  TEST_CASE("NcclBackend: a call that another rank's failure may have ended blames that one") {
    // Rank 0's own call fails with a remote error, and 100 ms later rank 1 dies.
    auto ranks = gpu_ranks(3, kPatience,
                           {{"FAKE_NCCL_FAULTS", "rank=0,call=ncclAllReduce,nth=3,do=ret:6"},
                            {"FAKE_NCCL_PEERWATCH", "0"}},
                           [](ProcessGroup& group, const Voice& voice) {
                             Buffer buffer(group);
                             reduce(group, buffer);
                             voice.say("reduced");
                             if (group.rank() == 1) {
                               std::this_thread::sleep_for(milliseconds(100));
                               ::raise(SIGKILL);
                             }
                             reduce(group, buffer);
                           });
    for (const int r : {0, 2}) {
      CHECK(ranks.hear(r, Deadline::after(kPatience)) == "reduced");
      const auto failure = failure_from(ranks, r);
      CHECK_MESSAGE(failure.type == "RemoteError", failure.text);
      CHECK_MESSAGE(failure.rank == 1, failure.text);
    }
  }

  TEST_CASE("NcclBackend: a killed rank is named when the store goes with it") {
    auto ranks = cpu_ranks(3, [](ProcessGroup& outer, const Voice& voice) {
      std::unique_ptr<TcpStoreServer> server;
      ProcessGroup group(store_of_rank_0(outer, server), outer.rank(), 3,
                         on_gpu(outer.rank(), kPatience));
      reduce_for_ever(group, voice);
    });
    for (int r = 0; r < 3; ++r) CHECK(ranks.hear(r, Deadline::after(kPatience)) == "ready");
    const auto killed = now_us();
    ranks.signal(0, SIGKILL);
    for (const int r : {1, 2}) {
      const auto failure = failure_from(ranks, r);
      CHECK_MESSAGE(failure.type == "RemoteError", failure.text);
      CHECK_MESSAGE(failure.rank == 0, failure.text);
      CHECK(failure.at_us - killed < kPromisedUs);
    }
  }

  TEST_CASE("NcclBackend: a killed rank is named when the store is silent") {
    auto ranks = cpu_ranks(3, [](ProcessGroup& outer, const Voice& voice) {
      std::unique_ptr<TcpStoreServer> server;
      const auto store = std::make_shared<SilentStore>(store_of_rank_0(outer, server), kPatience);
      ProcessGroup group(store, outer.rank(), 3, on_gpu(outer.rank(), kPatience));
      Buffer buffer(group);
      reduce(group, buffer);
      store->fall_silent();
      voice.say("ready");
      for (;;) reduce(group, buffer);
    });
    for (int r = 0; r < 3; ++r) CHECK(ranks.hear(r, Deadline::after(kPatience)) == "ready");
    const auto killed = now_us();
    ranks.signal(1, SIGKILL);
    for (const int r : {0, 2}) {
      const auto failure = failure_from(ranks, r);
      CHECK_MESSAGE(failure.type == "RemoteError", failure.text);
      CHECK_MESSAGE(failure.rank == 1, failure.text);
      CHECK(failure.at_us - killed < 2 * kPromisedUs);  // it is asked before, and told after
    }
  }

  TEST_CASE("NcclBackend: a silent store is no failure of operations that finish") {
    auto ranks = cpu_ranks(2, [](ProcessGroup& outer, const Voice& voice) {
      std::unique_ptr<TcpStoreServer> server;
      const auto store =
          std::make_shared<SilentStore>(store_of_rank_0(outer, server), milliseconds(1200));
      {
        ProcessGroup group(store, outer.rank(), 2, on_gpu(outer.rank(), seconds(1)));
        Buffer buffer(group);
        reduce(group, buffer);
        store->fall_silent();
        for (const auto until = Deadline::after(milliseconds(3500)); !until.expired();) {
          if (outer.rank() == 1) std::this_thread::sleep_for(milliseconds(100));
          reduce(group, buffer);
          outer.mean(1);
        }
      }
      voice.say("done");
      outer.barrier();
    });
    for (int r = 0; r < 2; ++r) CHECK(ranks.hear(r, Deadline::after(kPatience)) == "done");
  }

  TEST_CASE("NcclBackend: an exception does not wait for the operations under way") {
    auto ranks = gpu_ranks(2, kPatience, {}, [](ProcessGroup& group, const Voice& voice) {
      Buffer buffer(group);
      reduce(group, buffer);
      if (group.rank() == 1) ::pause();
      const Work work = start_reduce(group, buffer);
      voice.say("called");
      throw std::runtime_error("of the program");
    });
    CHECK(ranks.hear(0, Deadline::after(kPatience)) == "called");
    const auto thrown = now_us();
    const auto failure = failure_from(ranks, 0);
    CHECK_MESSAGE(contains(failure.text, "of the program"), failure.text);
    CHECK(failure.at_us - thrown < kPromisedUs);
  }

  TEST_CASE("NcclBackend: what fails while the group is destroyed is logged") {
    auto ranks = gpu_ranks(2, kShort, {}, [](ProcessGroup& group, const Voice& voice) {
      if (group.rank() == 1) ::pause();
      const auto memory = cuda::allocate(kNumel * sizeof(float), group.device().index);
      Buffer buffer(group, memory);
      voice.say(log_of(group, [&](ProcessGroup& own) { start_reduce(own, buffer); }));
      ::_exit(0);  // its memory waits for what is stuck
    });
    const auto text = ranks.hear(0, Deadline::after(kPatience));
    CHECK_MESSAGE(contains(text, "not reached within 1500 ms by rank 1"), text);
  }

  TEST_CASE("NcclBackend: a rank without threads fails and ends in order") {
    auto ranks = gpu_ranks(2, kPatience,
                           {{"FAKE_NCCL_FAULTS", "rank=1,call=ncclAllReduce,nth=4,do=async:3"}},
                           [](ProcessGroup& group, const Voice&) {
                             Buffer buffer(group);
                             reduce(group, buffer);
                             if (group.rank() == 1) deny_threads();
                             for (;;) reduce(group, buffer);
                           });
    const auto own = failure_from(ranks, 1);
    CHECK_MESSAGE(own.type == "DeviceError", own.text);
    CHECK(WIFEXITED(ranks.wait(1)));
    const auto failure = failure_from(ranks, 0);
    CHECK_MESSAGE(failure.type == "RemoteError", failure.text);
    CHECK_MESSAGE(failure.rank == 1, failure.text);
  }
}
