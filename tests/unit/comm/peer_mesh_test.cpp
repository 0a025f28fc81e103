// SPDX-License-Identifier: MIT
// PeerMesh and Segment: who may connect, and what is handed over.
#include "comm/cpu/peer_mesh.h"

#include <ddprun/error.h>

#include <array>
#include <cstring>
#include <latch>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "comm/cpu/page.h"
#include "support/run_ranks.h"

using namespace ddprun;
using namespace ddprun::test;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

Deadline soon() { return Deadline::after(seconds(20)); }

struct Names {
  explicit Names(int n) {
    for (int r = 0; r < n; ++r) {
      tokens.push_back(random_token());
      listeners.push_back(listen_for_peers(tokens.back()));
    }
  }
  PeerMesh mesh(int rank, Deadline deadline = soon()) {
    return {rank, tokens, std::move(listeners[static_cast<std::size_t>(rank)]), deadline};
  }
  std::vector<std::string> tokens;
  std::vector<UniqueFd> listeners;
};

UniqueFd connect_as_stranger(const std::string& token) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const auto text = "ddprun." + token;
  std::memcpy(name.sun_path + 1, text.data(), text.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  CHECK(::connect(fd.get(), reinterpret_cast<sockaddr*>(&name), length) == 0);
  return fd;
}

}  // namespace

TEST_SUITE("comm") {
  TEST_CASE("PeerMesh: strangers, silent or with a wrong greeting, are dropped") {
    Names names(2);
    const auto silent = connect_as_stranger(names.tokens[0]);
    const auto liar = connect_as_stranger(names.tokens[0]);
    const auto greeting = std::string("\1\0\0\0", 4) + std::string(32, 'x');  // "rank 1"
    CHECK(::send(liar.get(), greeting.data(), greeting.size(), 0) == 36);
    run_ranks(2, [&](int rank) {
      PeerMesh mesh = names.mesh(rank);
      UniqueFd fd;
      const auto own = Segment::create(100, fd);
      own->data()[0] = static_cast<std::byte>(rank);
      const auto all = mesh.share(
          own, fd.get(), 100, [] {}, soon());
      CHECK(all[1]->data()[0] == std::byte{1});
    });
    char end = 0;
    CHECK(::recv(liar.get(), &end, 1, 0) == 0);
  }

  TEST_CASE("PeerMesh: ranks that are threads of one process share one mapping") {
    Names names(3);
    std::array<std::array<std::byte*, 3>, 3> seen{};
    run_ranks(3, [&](int rank) {
      PeerMesh mesh = names.mesh(rank);
      UniqueFd fd;
      const auto own = Segment::create(10, fd);
      const auto all = mesh.share(
          own, fd.get(), 10, [] {}, soon());
      for (std::size_t r = 0; r < 3; ++r) seen[static_cast<std::size_t>(rank)][r] = all[r]->data();
      for (const pid_t pid : mesh.pids()) CHECK(pid == 0);
    });
    CHECK(seen[0] == seen[1]);
    CHECK(seen[0] == seen[2]);
  }

  TEST_CASE("PeerMesh: a rank that leaves in the middle is named, and what it was sent is freed") {
    Names names(2);
    const auto errors = errors_of_ranks(2, [&](int rank) {
      PeerMesh mesh = names.mesh(rank);
      if (rank == 1) return;
      UniqueFd fd;
      mesh.share(
          Segment::create(10, fd), fd.get(), 10, [] {}, soon());
    });
    CHECK_MESSAGE(errors[0].find("rank 1") != std::string::npos, errors[0]);
  }

  TEST_CASE("PeerMesh: a rank that left is blamed, not those that left because of it") {
    for (int round = 0; round < 20; ++round) {
      Names names(4);
      std::latch connected(4);
      const auto errors = errors_of_ranks(4, [&](int rank) {
        PeerMesh mesh = names.mesh(rank);
        connected.arrive_and_wait();
        if (rank == 1) return;
        UniqueFd fd;
        mesh.share(
            Segment::create(10, fd), fd.get(), 10, [] {}, soon());
      });
      for (const int rank : {0, 2, 3})
        CHECK_MESSAGE(
            errors[static_cast<std::size_t>(rank)].find("rank 1 has left") != std::string::npos,
            errors[static_cast<std::size_t>(rank)]);
    }
  }

  TEST_CASE("PeerMesh: what is known of a failure is said in place of the closed socket") {
    Names names(2);
    const auto errors = errors_of_ranks(2, [&](int rank) {
      PeerMesh mesh = names.mesh(rank);
      if (rank == 1) return;
      const auto look = [] { throw RemoteError(3, "rank 3 had no memory"); };
      UniqueFd fd;
      mesh.share(Segment::create(10, fd), fd.get(), 10, look, soon());
    });
    CHECK(errors[0] == "rank 3 had no memory");
  }

  TEST_CASE("PeerMesh: who does not connect in time is named") {
    Names names(3);
    CHECK_THROWS_WITH_AS(names.mesh(0, Deadline::after(milliseconds(50))),
                         doctest::Contains("ranks 1, 2 did not connect"), TimeoutError);
  }

  TEST_CASE("Segment: a second mapping sees the same bytes, and the file cannot shrink") {
    UniqueFd fd;
    const auto segment = Segment::create(5'000'000, fd);
    const auto again = Segment::map(fd.get(), 5'000'000);
    segment->data()[4'999'999] = std::byte{7};
    CHECK(again->data()[4'999'999] == std::byte{7});
    CHECK(again->data() != segment->data());
    CHECK(::ftruncate(fd.get(), 0) != 0);
  }

  TEST_CASE("Segment: a file that is too small or may shrink is refused") {
    const UniqueFd plain(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    CHECK(::ftruncate(plain.get(), 4096) == 0);
    CHECK_THROWS_WITH_AS(Segment::map(plain.get(), 100), doctest::Contains("not sealed"),
                         DeviceError);
    CHECK(::fcntl(plain.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    CHECK_THROWS_AS(Segment::map(plain.get(), 5000), DeviceError);
    CHECK_NOTHROW(Segment::map(plain.get(), 4096));
  }

  TEST_CASE("Flag: counts over the wrap, and poison does not hide what was reached") {
    constexpr std::uint32_t kLast = Flag::kPoison - 1;
    CHECK(Flag::reached(kLast, kLast));
    CHECK(Flag::reached(0, kLast));
    CHECK(Flag::reached(5, kLast - 5));
    CHECK_FALSE(Flag::reached(kLast, 0));
    CHECK_FALSE(Flag::reached(kLast - 5, 5));
    Flag flag;
    flag.poison();
    flag.post(3);
    CHECK(flag.reached(3));
    CHECK_FALSE(flag.reached(4));
    CHECK((flag.seq.load() & Flag::kPoison) != 0);
  }
}
