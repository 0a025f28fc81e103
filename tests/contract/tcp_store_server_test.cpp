// SPDX-License-Identifier: MIT
// The store's server among strangers: each costs one connection and nothing else. And what a new
// attempt drops.
#include "store/tcp_store_server.h"

#include <fstream>
#include <optional>
#include <random>
#include <thread>

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/resource.h>

#include "support/raw_client.h"
#include "support/stores.h"

using namespace ddprun;
using namespace ddprun::test;
using namespace std::chrono_literals;
using namespace std::string_literals;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMemoryIsMeasurable = false;  // sanitizers keep freed memory
#else
constexpr bool kMemoryIsMeasurable = true;
#endif

std::size_t resident_bytes() {
  std::size_t total = 0;
  std::size_t resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * 4096;
}

void check_alive(ServedStore& served) {
  const auto store = served.open();
  const auto start = Deadline::Clock::now();
  store->set("alive", "yes");
  CHECK(store->get("alive", soon()) == "yes");
  CHECK(Deadline::Clock::now() - start < 3s);
}

std::string claim(Operation operation, std::uint64_t length, bool in_value) {
  std::string out = RawClient::hello();
  put_opcode(out, Dialect::torch_2x, operation);
  if (in_value) put_bytes(out, "k");
  put_u64(out, length);
  return out;
}

/// Lowers a limit of the process for the length of a test.
class ScopedDescriptorLimit {
 public:
  explicit ScopedDescriptorLimit(rlim_t limit) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit lower{limit, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &lower);
  }
  ScopedDescriptorLimit(const ScopedDescriptorLimit&) = delete;
  ScopedDescriptorLimit& operator=(const ScopedDescriptorLimit&) = delete;
  ~ScopedDescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

TEST_SUITE("store") {
  TEST_CASE("TcpStoreServer: a client of another protocol is closed and disturbs nobody") {
    ServedStore served;
    for (const auto& bytes :
         {"GET / HTTP/1.1\r\nHost: x\r\n\r\n"s, "\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03"s,
          "SSH-2.0-OpenSSH_9.2\r\n"s, "\0\xce\xf7\x85\x3d\0\0\0\0"s}) {
      RawClient stranger(served.server.port());
      stranger.send(bytes);
      CHECK(stranger.is_closed());
      check_alive(served);
    }
  }

  TEST_CASE("TcpStoreServer: random bytes disturb nobody") {
    ServedStore served;
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937 random(seed);
    std::vector<RawClient> strangers;
    for (int i = 0; i < 200; ++i) {
      std::string bytes = i % 2 == 0 ? "" : RawClient::hello();
      for (int n = 0; n < 64; ++n) bytes += static_cast<char>(random());
      // After a good greeting: opcodes that exist, so that the bytes after them are looked at.
      if (i % 2 == 1) bytes[10] = static_cast<char>(random() % 14);
      strangers.emplace_back(served.server.port()).send(bytes);
    }
    check_alive(served);
  }

  TEST_CASE("TcpStoreServer: absurd lengths are refused without taking memory") {
    ServedStore served;
    check_alive(served);
    const auto before = resident_bytes();
    for (const std::uint64_t length : {1ULL << 40, 1ULL << 62, ~0ULL}) {
      for (const auto& bytes :
           {claim(Operation::get, length, false), claim(Operation::set, length, true),
            claim(Operation::append, length, true), claim(Operation::wait, length, false),
            claim(Operation::multi_set, length, false)}) {
        RawClient stranger(served.server.port());
        stranger.send(bytes);
        CHECK(stranger.receive(4) == "\x07\0\0\0"s);
        CHECK(stranger.is_closed());
      }
    }
    // The largest length that is allowed, claimed but never sent, costs nothing either.
    std::vector<RawClient> claimers;
    for (int i = 0; i < 100; ++i)
      claimers.emplace_back(served.server.port()).send(claim(Operation::set, kMaxValueBytes, true));
    check_alive(served);
    if (kMemoryIsMeasurable) CHECK(resident_bytes() < before + (16U << 20));
  }

  TEST_CASE("TcpStoreServer: a request may come byte by byte, or stop half way for good") {
    ServedStore served;
    std::string set = RawClient::request(Operation::set, "/k");
    put_bytes(set, "value");
    std::vector<RawClient> stopped;
    for (std::size_t cut = 1; cut < set.size(); ++cut)
      stopped.emplace_back(served.server.port()).send(RawClient::hello() + set.substr(0, cut));
    CHECK_FALSE(served.open()->try_get("k").has_value());
    RawClient slow(served.server.port());
    for (const char& byte : RawClient::hello() + set + RawClient::request(Operation::get, "/k"))
      slow.send({&byte, 1});
    CHECK(slow.receive(4 + 8 + 5).substr(12) == "value");
    stopped.clear();
    check_alive(served);
  }

  TEST_CASE("TcpStoreServer: a client that does not read costs bounded memory") {
    ServedStore served;
    const auto store = served.open();
    store->set("big", std::string(std::size_t{1} << 20, 'v'));
    REQUIRE(store->check(std::vector<std::string>{"big"}));  // a set is not answered: it is there
    const auto before = resident_bytes();
    RawClient deaf(served.server.port());
    std::string gets = RawClient::hello();
    for (int i = 0; i < 200; ++i) gets += RawClient::request(Operation::get, "/big");
    deaf.send(gets);
    check_alive(served);
    if (kMemoryIsMeasurable) CHECK(resident_bytes() < before + (16U << 20));
    CHECK(deaf.receive(4) == "\x07\0\0\0"s);
    for (int i = 0; i < 200; ++i) CHECK(deaf.receive(8 + (1U << 20)).back() == 'v');
  }

  TEST_CASE("TcpStoreServer: idle connections are kept") {
    ServedStore served;
    std::vector<RawClient> idle;
    for (int i = 0; i < 200; ++i) idle.emplace_back(served.server.port());
    check_alive(served);
    for (RawClient& client : idle) client.send(RawClient::hello());
    for (RawClient& client : idle) CHECK(client.receive(4) == "\x07\0\0\0"s);
  }

  TEST_CASE("TcpStoreServer: out of descriptors it neither dies nor spins, and goes on later") {
    ServedStore served;
    check_alive(served);
    RawClient waiting(served.server.port());
    waiting.send(RawClient::hello());
    CHECK(waiting.receive(4) == "\x07\0\0\0"s);
    std::optional<RawClient> late;
    {
      const ScopedDescriptorLimit limit(256);
      std::vector<UniqueFd> filling;
      for (int fd = ::dup(waiting.fd()); fd >= 0; fd = ::dup(waiting.fd()))
        filling.emplace_back(fd);
      REQUIRE_FALSE(filling.empty());
      filling.pop_back();  // room for the client's own end, not for the server's
      late.emplace(served.server.port()).send(RawClient::hello());
      const double cpu = cpu_seconds();
      waiting.send(RawClient::request(Operation::get, "/alive"));
      CHECK(waiting.receive(8 + 3).substr(8) == "yes");
      pollfd entry{late->fd(), POLLIN, 0};
      CHECK(::poll(&entry, 1, 500) == 0);
      CHECK(cpu_seconds() - cpu < 0.25);
    }
    CHECK(late->receive(4) == "\x07\0\0\0"s);
  }

  TEST_CASE("TcpStoreServer: a client that leaves keeps nobody and what it set stays") {
    ServedStore served;
    served.open()->set("k", "kept");
    std::string wait = RawClient::hello();
    put_opcode(wait, Dialect::torch_2x, Operation::wait);
    put_u64(wait, 1);
    put_bytes(wait, "/late");
    { RawClient(served.server.port()).send(wait); }
    const auto store = served.open();
    store->set("late", "");
    CHECK(store->get("k", soon()) == "kept");
  }

  TEST_CASE("TcpStoreServer: both dialects share one port and one map") {
    ServedStore served;
    RawClient old(served.server.port());
    std::string set;
    put_opcode(set, Dialect::torch_1_13, Operation::set);
    put_bytes(set, "/k");
    put_bytes(set, "from 1.13");
    old.send(set);
    CHECK(served.open()->get("k", soon()) == "from 1.13");
    std::string get;
    put_opcode(get, Dialect::torch_1_13, Operation::get);
    put_bytes(get, "/k");
    old.send(get);
    CHECK(old.receive(8 + 9).substr(8) == "from 1.13");
  }

  TEST_CASE("TcpStoreServer: a new attempt drops the workers' keys and keeps the launchers'") {
    ServedStore served;
    const auto launcher = served.open();
    launcher->set("ddprun/round", "1");
    const auto worker = served.open();
    worker->set("rank0", "address");
    REQUIRE(worker->get("rank0", soon()) == "address");  // a SET has no answer: now it is stored
    served.server.start_attempt();
    CHECK(launcher->get("ddprun/round", soon()) == "1");
    const auto next = served.open();
    CHECK_FALSE(next->try_get("rank0").has_value());
    CHECK(next->num_keys() == 0);
    CHECK_THROWS_AS(worker->get("rank0", soon()), ConnectionError);
  }

  TEST_CASE("TcpStoreServer: a new attempt closes connections that wait and those still silent") {
    ServedStore served;
    std::string error;
    std::jthread waiter([&, store = served.open()] {
      try {
        store->get("never", soon());
      } catch (const ConnectionError& e) {
        error = e.what();
      }
    });
    RawClient silent(served.server.port());
    RawClient greeted(served.server.port());
    greeted.send(RawClient::hello());
    greeted.receive(4);
    served.server.start_attempt();
    CHECK(silent.is_closed());
    CHECK(greeted.is_closed());
    waiter.join();
    CHECK(error.find("127.0.0.1:" + std::to_string(served.server.port())) != std::string::npos);
  }

  TEST_CASE("TcpStoreServer: when it ends, waiting clients are told at once") {
    auto served = std::make_unique<ServedStore>();
    const auto store = served->open();
    std::jthread waiter([&] { CHECK_THROWS_AS(store->get("never", soon()), ConnectionError); });
    served.reset();
  }
}
