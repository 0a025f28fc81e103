// SPDX-License-Identifier: MIT
// The store's client: reaching a server, or what is none; and staying in step with one that is
// late.
#include <ddprun/error.h>

#include <array>
#include <atomic>
#include <random>
#include <thread>

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>

#include "support/stores.h"

using namespace ddprun;
using namespace ddprun::test;
using namespace std::chrono_literals;
using Keys = std::vector<std::string>;

namespace {

/// A server that answers every connection with fixed bytes and then keeps or closes it.
class FakeServer {
 public:
  FakeServer(std::string answer, bool closes)
      : thread_([this, answer = std::move(answer), closes](const std::stop_token& stop) {
          std::vector<UniqueFd> kept;
          while (!stop.stop_requested()) {
            pollfd entry{listener_.get(), POLLIN, 0};
            if (::poll(&entry, 1, 20) != 1) continue;
            UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
            send_all(fd.get(), std::as_bytes(std::span(answer)), soon());
            if (!closes) kept.push_back(std::move(fd));
          }
        }) {}

  std::uint16_t port() const { return local_port(listener_.get()); }

 private:
  UniqueFd listener_ = listen_tcp("127.0.0.1", 0);
  std::jthread thread_;
};

/// Passes bytes between one client and a server; the server's answers can be held back, as by a
/// server that is stopped or a network that is slow.
class Relay {
 public:
  explicit Relay(std::uint16_t server_port)
      : thread_([this, server_port](const std::stop_token& stop) { run(server_port, stop); }) {}

  std::uint16_t port() const { return local_port(listener_.get()); }
  void hold_answers(bool hold) { hold_ = hold; }

 private:
  void run(std::uint16_t server_port, const std::stop_token& stop) {
    pollfd knock{listener_.get(), POLLIN, 0};
    while (::poll(&knock, 1, 20) != 1)
      if (stop.stop_requested()) return;
    const UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const UniqueFd server = connect_tcp("127.0.0.1", server_port, soon());
    std::array<std::byte, 4096> buffer{};
    while (!stop.stop_requested()) {
      std::array<pollfd, 2> entries = {pollfd{client.get(), POLLIN, 0},
                                       pollfd{server.get(), POLLIN, 0}};
      if (::poll(entries.data(), hold_ ? 1 : 2, 5) <= 0) continue;
      for (const auto& entry : entries) {
        if (entry.revents == 0) continue;
        const ssize_t n = ::recv(entry.fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
        if (n <= 0) return;
        const int to = entry.fd == client.get() ? server.get() : client.get();
        send_all(to, std::span(buffer).first(static_cast<std::size_t>(n)), soon());
      }
    }
  }

  UniqueFd listener_ = listen_tcp("127.0.0.1", 0);
  std::atomic<bool> hold_ = false;
  std::jthread thread_;
};

std::shared_ptr<Store> connect(std::uint16_t port, std::chrono::milliseconds time) {
  return connect_tcp_store({.port = port, .request_timeout = 5s}, Deadline::after(time));
}

}  // namespace

TEST_SUITE("store") {
  TEST_CASE("TcpStore: connect waits for a server that is not up yet") {
    UniqueFd listener = listen_tcp("127.0.0.1", 0);
    const auto port = local_port(listener.get());
    listener.reset();
    std::atomic<bool> connected = false;
    std::jthread client([&] {
      connect(port, 20s)->set("k", "v");
      connected = true;
    });
    CHECK_THROWS_AS(connect(port, 100ms), ConnectionError);
    CHECK_FALSE(connected);
    TcpStoreServer server(listen_tcp("127.0.0.1", port));
    CHECK(connect(port, 20s)->get("k", soon()) == "v");
  }

  TEST_CASE("TcpStore: connect tries again when the server closes it before it has answered") {
    // As a kernel does whose backlog is full.
    UniqueFd listener = listen_tcp("127.0.0.1", 0);
    const auto port = local_port(listener.get());
    std::jthread client([&] { CHECK(connect(port, 20s)->add("n", 1) == 1); });
    for (int i = 0; i < 3; ++i) {
      pollfd entry{listener.get(), POLLIN, 0};
      REQUIRE(::poll(&entry, 1, 10'000) == 1);
      UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)).reset();
    }
    const TcpStoreServer server(std::move(listener));
    client.join();
  }

  TEST_CASE("TcpStore: connect tries again when a connection gets no answer") {
    UniqueFd listener = listen_tcp("127.0.0.1", 0);
    const auto port = local_port(listener.get());
    std::jthread client([&] { CHECK(connect(port, 20s)->add("n", 1) == 1); });
    pollfd entry{listener.get(), POLLIN, 0};
    REQUIRE(::poll(&entry, 1, 10'000) == 1);
    const UniqueFd silent(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const TcpStoreServer server(std::move(listener));
    client.join();
  }

  TEST_CASE("TcpStore: connect to nobody ends at its deadline and names the address") {
    UniqueFd listener = listen_tcp("127.0.0.1", 0);
    const auto port = local_port(listener.get());
    listener.reset();
    const auto start = Deadline::Clock::now();
    const std::string address = "127.0.0.1:" + std::to_string(port) + ": Connection refused";
    CHECK_THROWS_WITH_AS(connect(port, 300ms), doctest::Contains(address.c_str()), ConnectionError);
    const auto took = Deadline::Clock::now() - start;
    CHECK(took >= 300ms);
    CHECK(took < 2s);
  }

  TEST_CASE("TcpStore: a server that closes, answers HTTP or stays silent is not a store") {
    const FakeServer closing("", true);
    CHECK_THROWS_WITH_AS(connect(closing.port(), 300ms), doctest::Contains("is not a store"),
                         ConnectionError);
    const FakeServer web("HTTP/1.1 400 Bad Request\r\n\r\n", true);
    const auto start = Deadline::Clock::now();
    CHECK_THROWS_WITH_AS(connect(web.port(), 20s), doctest::Contains("is not a store"),
                         ConnectionError);
    CHECK(Deadline::Clock::now() - start < 5s);
    const FakeServer silent("", false);
    CHECK_THROWS_WITH_AS(connect(silent.port(), 300ms), doctest::Contains("is not a store"),
                         TimeoutError);
  }

  TEST_CASE("TcpStore: the error of a timed-out wait names the server") {
    ServedStore served;
    const std::string server = "127.0.0.1:" + std::to_string(served.server.port());
    CHECK_THROWS_WITH_AS(served.open()->get("k", Deadline::after(20ms)),
                         doctest::Contains(server.c_str()), TimeoutError);
  }

  TEST_CASE("TcpStore: a key set around the deadline never answers the next request") {
    ServedStore served;
    const auto store = served.open();
    const auto other = served.open();
    store->set("fixed", "fixed value");
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    std::minstd_rand random(seed);
    std::uniform_int_distribution<int> jitter(1000, 3000);
    int timed_out = 0;
    constexpr int kRounds = 300;
    for (int round = 1; round <= kRounds; ++round) {
      const Keys keys = {"here", "late" + std::to_string(round)};
      other->set("here", "");
      const auto when = Deadline::after(std::chrono::microseconds(jitter(random)));
      std::jthread setter([&] {
        std::this_thread::sleep_until(when.at());  // a moment, not a condition
        other->set(keys[1], "");
      });
      try {
        store->wait(keys, Deadline::after(2ms));
      } catch (const TimeoutError& e) {
        ++timed_out;
        CHECK(std::string(e.what()).find("'here'") == std::string::npos);
      }
      CHECK(store->add("n", 1) == round);
      CHECK(store->get("fixed", soon()) == "fixed value");
    }
    CHECK(timed_out > 0);
    CHECK(timed_out < kRounds);
  }

  TEST_CASE("TcpStore: a wait ends at its deadline when the server is stopped, and stays in step") {
    ServedStore served;
    const auto other = served.open();
    Relay relay(served.server.port());
    const auto store = connect(relay.port(), 20s);
    other->set("here", "v");
    relay.hold_answers(true);
    for (int i = 0; i < 3; ++i) {
      const auto start = Deadline::Clock::now();
      CHECK_THROWS_WITH_AS(store->wait(Keys{"here", "late"}, Deadline::after(50ms)),
                           doctest::Contains("'late'"), TimeoutError);
      CHECK(Deadline::Clock::now() - start < 2s);
    }
    other->set("late", "at last");
    relay.hold_answers(false);
    CHECK(store->add("n", 3) == 3);
    CHECK(store->get("late", soon()) == "at last");
    CHECK(store->num_keys() == 3);
  }

  TEST_CASE("TcpStore: a request without an answer ends at its time, later ones say so at once") {
    ServedStore served;
    Relay relay(served.server.port());
    const auto store = connect_tcp_store({.port = relay.port(), .request_timeout = 100ms}, soon());
    relay.hold_answers(true);
    CHECK_THROWS_WITH_AS(store->add("n", 1), doctest::Contains("did not answer"), TimeoutError);
    relay.hold_answers(false);
    CHECK_THROWS_WITH_AS(store->add("n", 1), doctest::Contains("given up"), ConnectionError);
  }

  TEST_CASE("TcpStore: a thread that finds the connection in use waits no longer than it may") {
    ServedStore served;
    const auto store = served.open();
    std::jthread waiter([&] { CHECK(store->get("k", soon()).empty()); });
    std::string error;
    while (error.find("another thread") == std::string::npos) {
      // Until the waiter has the connection, this thread can use it.
      try {
        store->wait(Keys{"never"}, Deadline::after(20ms));
      } catch (const TimeoutError& e) {
        error = e.what();
      }
    }
    served.open()->set("k", "");
  }

  TEST_CASE("TcpStore: keys and values over the limits are refused before they are sent") {
    ServedStore served;
    const auto store = served.open();
    CHECK_THROWS_AS(store->set(std::string(100'000, 'k'), ""), UsageError);
    CHECK_THROWS_AS(store->set("k", std::string((64U << 20) + 1, 'v')), UsageError);
    CHECK_THROWS_AS(store->check(Keys(200'000)), UsageError);
    store->set("k", "v");
    CHECK(store->get("k", soon()) == "v");
  }

  TEST_CASE("TcpStore: 150 clients that connect at once are all served") {
    ServedStore served;
    std::vector<std::jthread> threads;
    for (int i = 0; i < 150; ++i) threads.emplace_back([&] { served.open()->add("n", 1); });
    threads.clear();
    CHECK(served.open()->add("n", 0) == 150);
  }
}
