// SPDX-License-Identifier: MIT
// Sockets on loopback: who is named when it fails, and that a deadline holds.
#include "net/socket.h"

#include <ddprun/error.h>

#include <array>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <sys/socket.h>

#include "net/endpoint.h"

using namespace ddprun;
using namespace std::chrono_literals;

namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

struct Pair {
  UniqueFd listener = listen_tcp("127.0.0.1", 0);
  std::uint16_t port = local_port(listener.get());
  UniqueFd client = connect_tcp("127.0.0.1", port, Deadline::after(5s));
  UniqueFd server{::accept(listener.get(), nullptr, nullptr)};
};

}  // namespace

TEST_SUITE("net") {
  TEST_CASE("Socket: what one end sends the other receives") {
    Pair pair;
    send_all(pair.client.get(), bytes_of("hello"), Deadline::after(5s));
    std::array<char, 5> text{};
    receive_all(pair.server.get(), std::as_writable_bytes(std::span(text)), Deadline::after(5s));
    CHECK(std::string_view(text.data(), text.size()) == "hello");
  }

  TEST_CASE("Socket: more than the kernel's buffers passes when the peer reads") {
    Pair pair;
    std::vector<std::byte> sent(16 << 20, std::byte{7});
    std::vector<std::byte> got(sent.size());
    std::jthread reader([&] { receive_all(pair.server.get(), got, Deadline::after(20s)); });
    send_all(pair.client.get(), sent, Deadline::after(20s));
    reader.join();
    CHECK(got == sent);
  }

  TEST_CASE("Socket: receive stops at its deadline") {
    Pair pair;
    std::array<std::byte, 1> byte{};
    const auto start = Deadline::Clock::now();
    CHECK_THROWS_AS(receive_all(pair.client.get(), byte, Deadline::after(50ms)), TimeoutError);
    const auto took = Deadline::Clock::now() - start;
    CHECK(took >= 50ms);
    CHECK(took < 1s);
  }

  TEST_CASE("Socket: send stops at its deadline when the peer does not read") {
    Pair pair;
    const std::vector<std::byte> much(64 << 20);
    CHECK_THROWS_AS(send_all(pair.client.get(), much, Deadline::after(50ms)), TimeoutError);
  }

  TEST_CASE("Socket: a peer that closes is named") {
    Pair pair;
    pair.server.reset();
    std::array<std::byte, 4> bytes{};
    const std::string peer = "127.0.0.1:" + std::to_string(pair.port);
    CHECK_THROWS_WITH_AS(receive_all(pair.client.get(), bytes, Deadline::after(5s)),
                         doctest::Contains(peer.c_str()), ConnectionError);
  }

  TEST_CASE("Socket: the end in the middle of a message is an error") {
    Pair pair;
    send_all(pair.server.get(), bytes_of("ab"), Deadline::after(5s));
    pair.server.reset();
    std::array<std::byte, 4> bytes{};
    CHECK_THROWS_AS(receive_all(pair.client.get(), bytes, Deadline::after(5s)), ConnectionError);
  }

  TEST_CASE("Socket: a refusal is an error at once and names the address") {
    UniqueFd listener = listen_tcp("127.0.0.1", 0);
    const auto port = local_port(listener.get());
    listener.reset();
    const std::string address = "127.0.0.1:" + std::to_string(port) + ": Connection refused";
    const auto start = Deadline::Clock::now();
    CHECK_THROWS_WITH_AS(connect_tcp("127.0.0.1", port, Deadline::after(20s)),
                         doctest::Contains(address.c_str()), ConnectionError);
    CHECK(Deadline::Clock::now() - start < 5s);
  }

  TEST_CASE("Socket: every address of a name is tried") {
    // A listener on IPv4 only: where localhost has ::1 as well, that one is refused first.
    const UniqueFd listener = listen_tcp("127.0.0.1", 0);
    CHECK(connect_tcp("localhost", local_port(listener.get()), Deadline::after(5s)));
  }

  TEST_CASE("Socket: a connect without an answer stops at its deadline") {
    // A full backlog drops further SYNs, as a firewall would.
    const UniqueFd listener{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    Endpoint any = resolve("127.0.0.1", 0, EndpointUse::listen).at(0);
    REQUIRE(::bind(listener.get(), any.raw(), any.length) == 0);
    REQUIRE(::listen(listener.get(), 0) == 0);
    const auto port = local_port(listener.get());
    std::vector<UniqueFd> accepted;
    const auto start = Deadline::Clock::now();
    CHECK_THROWS_WITH_AS(
        [&] {
          for (int i = 0; i < 8; ++i)
            accepted.push_back(connect_tcp("127.0.0.1", port, Deadline::after(200ms)));
        }(),
        doctest::Contains("timed out"), ConnectionError);
    CHECK(Deadline::Clock::now() - start < 3s);
  }

  TEST_CASE("Socket: a port that is taken is named") {
    const UniqueFd listener = listen_tcp("127.0.0.1", 0);
    const auto port = local_port(listener.get());
    const std::string text = "127.0.0.1:" + std::to_string(port) + ": Address already in use";
    CHECK_THROWS_WITH_AS(listen_tcp("127.0.0.1", port), doctest::Contains(text.c_str()),
                         ConnectionError);
  }

  TEST_CASE("Socket: a listener on loopback is not reachable on other addresses") {
    const UniqueFd listener = listen_tcp("127.0.0.1", 0);
    CHECK(local_text(listener.get()).starts_with("127.0.0.1:"));
  }

  TEST_CASE("Socket: an empty host listens for both families") {
    const UniqueFd listener = listen_tcp("", 0);
    CHECK(connect_tcp("127.0.0.1", local_port(listener.get()), Deadline::after(5s)));
  }

  TEST_CASE("Socket: an address of another machine cannot be listened on") {
    CHECK_THROWS_WITH_AS(listen_tcp("192.0.2.1", 0), doctest::Contains("192.0.2.1"), UsageError);
  }

  TEST_CASE("Socket: a host without an address is named") {
    CHECK_THROWS_WITH_AS(connect_tcp("no-such-host.invalid", 1, Deadline::after(5s)),
                         doctest::Contains("no-such-host.invalid"), ConnectionError);
  }

  TEST_CASE("Endpoint: IPv6 gets brackets, IPv4 inside IPv6 is IPv4") {
    CHECK(to_string(resolve("::1", 29500, EndpointUse::connect).at(0)) == "[::1]:29500");
    CHECK(to_string(resolve("::ffff:10.0.0.7", 1, EndpointUse::connect).at(0)) == "10.0.0.7:1");
    CHECK(host_and_port("node0", 29500) == "node0:29500");
    CHECK(host_and_port("fe80::1", 29500) == "[fe80::1]:29500");
  }
}
