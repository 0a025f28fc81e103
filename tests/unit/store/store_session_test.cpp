// SPDX-License-Identifier: MIT
// StoreSession: what a client's bytes are answered with, without a socket.
#include "store/store_session.h"

#include <doctest/doctest.h>

using namespace ddprun;
using namespace std::string_literals;

namespace {

std::string key_request(Dialect dialect, Operation operation, std::string_view key) {
  std::string out;
  put_opcode(out, dialect, operation);
  if (request_layout(operation).counted) put_u64(out, 1);
  put_bytes(out, key);
  return out;
}

std::string set_request(Dialect dialect, std::string_view key, std::string_view value) {
  std::string out = key_request(dialect, Operation::set, key);
  put_bytes(out, value);
  return out;
}

std::string add_request(Dialect dialect, std::string_view key, std::int64_t delta) {
  std::string out = key_request(dialect, Operation::add, key);
  put_i64(out, delta);
  return out;
}

std::string hello() {
  std::string out;
  put_opcode(out, Dialect::torch_2x, Operation::validate);
  put_u32(out, kValidateMagic);
  put_opcode(out, Dialect::torch_2x, Operation::ping);
  put_u32(out, 7);
  return out;
}

std::string take(StoreSession& session) {
  const std::string bytes(session.unsent());
  session.sent(bytes.size());
  return bytes;
}

std::string vector(std::string_view bytes) {
  std::string out;
  put_bytes(out, bytes);
  return out;
}

std::string number(std::int64_t value) {
  std::string out;
  put_i64(out, value);
  return out;
}

/// Releases the waits that have ended, as the server does.
void deliver(StoreMap& map, StoreSession& session) {
  for ([[maybe_unused]] const auto id : map.take_released()) session.on_released();
}

constexpr auto k2x = Dialect::torch_2x;
constexpr auto k1_13 = Dialect::torch_1_13;

}  // namespace

TEST_SUITE("store") {
  TEST_CASE("StoreSession: answers come in the order of the requests, wherever these are cut") {
    const std::string input =
        hello() + set_request(k2x, "/a", "1") + add_request(k2x, "/n", 5) +
        key_request(k2x, Operation::check, "/b") + key_request(k2x, Operation::get, "/a") +
        key_request(k2x, Operation::get, "/missing") + key_request(k2x, Operation::erase, "/a") +
        key_request(k2x, Operation::wait, "/n");
    const std::string want =
        "\x07\0\0\0"s + number(5) + "\x01"s + vector("1") + vector("") + number(1) + "\0"s;
    for (std::size_t cut = 0; cut <= input.size(); ++cut) {
      StoreMap map;
      StoreSession session(map, 1);
      session.receive(std::string_view(input).substr(0, cut));
      session.receive(std::string_view(input).substr(cut));
      CHECK(take(session) == want);
    }
  }

  TEST_CASE("StoreSession: a cancelled wait is answered by 1 alone, a released one by 0 and 1") {
    StoreMap map;
    StoreSession session(map, 1);
    session.receive(hello());
    take(session);
    std::string cancel;
    put_opcode(cancel, k2x, Operation::cancel_wait);
    session.receive(key_request(k2x, Operation::wait, "/k"));
    session.receive(cancel);
    map.set("/k", "");
    deliver(map, session);
    CHECK(take(session) == "\x01"s);
    session.receive(key_request(k2x, Operation::wait, "/late"));
    map.set("/late", "");
    deliver(map, session);
    session.receive(cancel);
    CHECK(take(session) == "\0\x01"s);
  }

  TEST_CASE("StoreSession: a 1.13 client's abandoned wait never answers its next request") {
    StoreMap map;
    map.set("/there", "answer");
    const std::string next = key_request(k1_13, Operation::get, "/there");
    for (std::size_t cut = 1; cut <= next.size(); ++cut) {
      StoreSession session(map, 1);
      session.receive(key_request(k1_13, Operation::wait, "/late"));
      session.receive(std::string_view(next).substr(0, cut));
      map.set("/late", "");
      deliver(map, session);
      session.receive(std::string_view(next).substr(cut));
      CHECK(take(session) == vector("answer"));
      map.erase("/late");
    }
  }

  TEST_CASE("StoreSession: a client that does not read is held back, then served in order") {
    StoreMap map;
    map.set("/big", std::string(StoreSession::kMaxUnsentBytes, 'v'));
    StoreSession session(map, 1);
    session.receive(hello());
    take(session);
    std::string gets;
    for (int i = 0; i < 20; ++i)
      gets += key_request(k2x, Operation::get, "/big") + add_request(k2x, "/n", 1);
    session.receive(gets);
    CHECK_FALSE(session.wants_input());
    CHECK(session.unsent().size() < 2 * StoreSession::kMaxUnsentBytes);
    std::string got;
    while (!session.unsent().empty()) {
      CHECK(session.unsent().size() < 3 * StoreSession::kMaxUnsentBytes);
      const std::size_t part = std::min<std::size_t>(session.unsent().size(), 100'000);
      got += session.unsent().substr(0, part);
      session.sent(part);
    }
    CHECK(session.wants_input());
    std::string want;
    for (int i = 0; i < 20; ++i) want += vector(*map.find("/big")) + number(i + 1);
    CHECK((got == want));
  }

  TEST_CASE("StoreSession: a short MULTI_GET cannot ask for gigabytes") {
    StoreMap map;
    map.set("/big", std::string(std::size_t{1} << 20, 'v'));
    StoreSession session(map, 1);
    std::string request;
    put_opcode(request, k2x, Operation::multi_get);
    put_u64(request, 1000);
    for (int i = 0; i < 1000; ++i) put_bytes(request, "/big");
    session.receive(hello());
    CHECK_THROWS_AS(session.receive(request), ProtocolError);
  }

  TEST_CASE("StoreSession: add to a text ends the connection and changes nothing") {
    StoreMap map;
    map.set("/k", "abc");
    StoreSession session(map, 1);
    CHECK_THROWS_WITH_AS(session.receive(hello() + add_request(k2x, "/k", 1)),
                         doctest::Contains("'/k'"), ProtocolError);
    CHECK(*map.find("/k") == "abc");
  }

  TEST_CASE("StoreSession: a client that leaves is not waited with") {
    StoreMap map;
    {
      StoreSession session(map, 1);
      session.receive(hello() + key_request(k2x, Operation::wait, "/k"));
    }
    map.set("/k", "");
    CHECK(map.take_released().empty());
  }

  TEST_CASE("StoreSession: a 1.13 watcher is told of changes, one that does not read is refused") {
    StoreMap map;
    StoreSession session(map, 1);
    session.receive(key_request(k1_13, Operation::watch_key, "/k"));
    map.set("/k", "new");
    for (const auto& change : map.take_changes()) session.on_change(change);
    CHECK(take(session) == "\x03\x01"s + vector("/k") + vector("") + vector("new"));
    map.set("/k", std::string(2 * StoreSession::kMaxUnsentBytes, 'v'));
    map.set("/k", "next");
    const auto changes = map.take_changes();
    session.on_change(changes.at(0));
    CHECK_THROWS_AS(session.on_change(changes.at(1)), ProtocolError);
  }

  TEST_CASE("StoreSession: only clients that name nothing but /ddprun/ are the launchers'") {
    StoreMap map;
    StoreSession session(map, 1);
    session.receive(hello());
    CHECK_FALSE(session.is_launcher());
    session.receive(set_request(k2x, "/ddprun/round", "1"));
    CHECK(session.is_launcher());
    session.receive(key_request(k2x, Operation::check, "/k"));
    CHECK_FALSE(session.is_launcher());
  }
}
