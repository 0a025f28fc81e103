// SPDX-License-Identifier: MIT
// The protocol's bytes: written as PROTOCOL.md says, read back wherever the stream is cut.
#include "store/wire.h"

#include <utility>
#include <vector>

#include <doctest/doctest.h>

using namespace ddprun;
using namespace std::string_literals;

namespace {

const Dialect k2x = Dialect::torch_2x;
const Dialect k1_13 = Dialect::torch_1_13;

std::string hello() {
  std::string out;
  put_opcode(out, k2x, Operation::validate);
  put_u32(out, kValidateMagic);
  return out;
}

/// A request with fields that differ from each other.
std::string encode(Dialect dialect, Operation operation) {
  std::string out;
  put_opcode(out, dialect, operation);
  const Layout layout = request_layout(operation);
  if (layout.counted) put_u64(out, 3);
  for (int round = 0; round < (layout.counted ? 3 : 1); ++round) {
    int values = 0;
    for (const Field field : layout.fields) {
      if (field == Field::key) put_bytes(out, "/key" + std::to_string(round) + "\0!"s);
      if (field == Field::value) put_bytes(out, std::string(values++ * 7, 'v'));
      if (field == Field::i64) put_i64(out, -5);
      if (field == Field::u32) put_u32(out, 0x00FF1234);
    }
  }
  return out;
}

std::vector<Request> read_all(RequestReader& reader, std::string_view bytes) {
  std::vector<Request> requests;
  while (auto request = reader.read(bytes)) requests.push_back(std::move(*request));
  CHECK(bytes.empty());
  return requests;
}

bool same(const Request& a, const Request& b) {
  return a.operation == b.operation && a.keys == b.keys && a.values == b.values &&
         a.number == b.number;
}

const std::vector<Operation> kBoth = {Operation::set,   Operation::compare_set, Operation::get,
                                      Operation::add,   Operation::check,       Operation::wait,
                                      Operation::erase, Operation::num_keys};
const std::vector<Operation> kOnly2x = {Operation::append, Operation::multi_get,
                                        Operation::multi_set, Operation::cancel_wait,
                                        Operation::ping};

void check_cuts(Dialect dialect, Operation operation) {
  CAPTURE(static_cast<int>(operation));
  const std::string bytes =
      (dialect == k2x ? hello() : "") + encode(dialect, operation) + encode(dialect, operation);
  RequestReader whole;
  const auto want = read_all(whole, bytes);
  REQUIRE(want.size() == 2);
  CHECK(want[0].operation == operation);
  CHECK(whole.dialect() == dialect);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    RequestReader reader;
    auto got = read_all(reader, std::string_view(bytes).substr(0, cut));
    for (auto& request : read_all(reader, std::string_view(bytes).substr(cut)))
      got.push_back(std::move(request));
    REQUIRE(got.size() == 2);
    CHECK(same(got[0], want[0]));
    CHECK(same(got[1], want[1]));
  }
  RequestReader dripped;
  std::size_t count = 0;
  for (const char& byte : bytes) count += read_all(dripped, {&byte, 1}).size();
  CHECK(count == 2);
}

void refuses(const std::string& bytes, const char* text) {
  RequestReader reader;
  std::string_view rest = bytes;
  CHECK_THROWS_WITH_AS(while (reader.read(rest)){}, doctest::Contains(text), ProtocolError);
}

}  // namespace

TEST_SUITE("store") {
  TEST_CASE("Wire: requests have the bytes of PyTorch's clients") {
    std::string set;
    put_opcode(set, k2x, Operation::set);
    put_bytes(set, "/k");
    put_bytes(set, "val");
    CHECK(set == "\x01\x02\0\0\0\0\0\0\0/k\x03\0\0\0\0\0\0\0val"s);
    std::string add;
    put_opcode(add, k1_13, Operation::add);
    put_bytes(add, "init/");
    put_i64(add, 1);
    CHECK(add == "\x03\x05\0\0\0\0\0\0\0init/\x01\0\0\0\0\0\0\0"s);
    CHECK(hello() == "\0\xce\xf7\x85\x3c"s);
  }

  TEST_CASE("Wire: a request is read the same wherever the stream is cut") {
    for (const Operation operation : kBoth) {
      check_cuts(k2x, operation);
      check_cuts(k1_13, operation);
    }
    for (const Operation operation : kOnly2x) check_cuts(k2x, operation);
    check_cuts(k1_13, Operation::watch_key);
  }

  TEST_CASE("Wire: fields arrive in order") {
    RequestReader reader;
    const auto requests =
        read_all(reader, hello() + encode(k2x, Operation::compare_set) +
                             encode(k2x, Operation::add) + encode(k2x, Operation::multi_set));
    REQUIRE(requests.size() == 3);
    CHECK(requests[0].keys == std::vector{"/key0\0!"s});
    CHECK(requests[0].values == std::vector{""s, "vvvvvvv"s});
    CHECK(requests[1].number == -5);
    CHECK(requests[2].keys.size() == 3);
    CHECK(requests[2].values.size() == 3);
  }

  TEST_CASE("Wire: a count of no keys is a whole request") {
    std::string bytes = hello();
    put_opcode(bytes, k2x, Operation::wait);
    put_u64(bytes, 0);
    RequestReader reader;
    CHECK(read_all(reader, bytes).size() == 1);
  }

  TEST_CASE("Wire: replies are read back wherever the stream is cut") {
    std::string bytes;
    put_bytes(bytes, "one");
    put_bytes(bytes, "");
    put_bytes(bytes, "three");
    for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
      MessageReader reader(reply_layout(Operation::multi_get), 3);
      std::string_view first = std::string_view(bytes).substr(0, cut);
      std::string_view second = std::string_view(bytes).substr(cut);
      reader.read(first);
      CHECK(reader.done() == (cut == bytes.size()));
      reader.read(second);
      CHECK(reader.done());
      CHECK(reader.take().values == std::vector{"one"s, ""s, "three"s});
    }
  }

  TEST_CASE("Wire: a reader takes no byte of the next message") {
    std::string bytes;
    put_i64(bytes, 42);
    bytes += "next";
    MessageReader reader(reply_layout(Operation::add));
    std::string_view rest = bytes;
    reader.read(rest);
    CHECK(reader.take().number == 42);
    CHECK(rest == "next");
  }

  TEST_CASE("Wire: a length over the limit is refused as soon as it is there") {
    for (const std::uint64_t length : {std::uint64_t{kMaxKeyBytes} + 1, std::uint64_t{1} << 40,
                                       std::uint64_t{1} << 62, ~std::uint64_t{0}}) {
      std::string key = hello();
      put_opcode(key, k2x, Operation::get);
      put_u64(key, length);
      refuses(key, "a key of");
      std::string count = hello();
      put_opcode(count, k2x, Operation::multi_get);
      put_u64(count, length + kMaxKeyCount < length ? length : length + kMaxKeyCount);
      refuses(count, "a count of");
      std::string value = hello();
      put_opcode(value, k2x, Operation::set);
      put_bytes(value, "k");
      put_u64(value, length + kMaxValueBytes < length ? length : length + kMaxValueBytes);
      refuses(value, "a value of");
    }
  }

  TEST_CASE("Wire: lengths up to the limits are accepted") {
    std::string bytes = hello();
    put_opcode(bytes, k2x, Operation::set);
    put_bytes(bytes, std::string(kMaxKeyBytes, 'k'));
    put_bytes(bytes, std::string(kMaxValueBytes, 'v'));
    RequestReader reader;
    const auto requests = read_all(reader, bytes);
    REQUIRE(requests.size() == 1);
    CHECK(requests[0].keys[0].size() == kMaxKeyBytes);
    CHECK(requests[0].values[0].size() == kMaxValueBytes);
  }

  TEST_CASE("Wire: a message of many large values is refused before it is whole") {
    std::string value;
    put_bytes(value, "k");
    put_bytes(value, std::string(kMaxValueBytes, 'v'));
    std::string bytes = hello();
    put_opcode(bytes, k2x, Operation::multi_set);
    put_u64(bytes, 100);
    RequestReader reader;
    CHECK(read_all(reader, bytes).empty());
    CHECK_THROWS_AS(for (int i = 0; i < 100; ++i) read_all(reader, value), ProtocolError);
  }

  TEST_CASE("Wire: bytes of other protocols are refused at once") {
    refuses("GET / HTTP/1.1\r\n", "first byte 0x47");
    refuses("\x16\x03\x01\x02", "first byte 0x16");
    refuses("\xff", "first byte 0xff");
    refuses("\0\xce\xf7\x85\x3d"s, "wrong magic 0x3d85f7ce");
    refuses(hello() + "\x40", "opcode 64");
    refuses(hello() + "\x0e", "opcode 14");
    refuses(hello() + hello(), "opcode 0");
  }

  TEST_CASE("Wire: a counter's text is read as strtoll reads it") {
    CHECK(parse_counter("42") == 42);
    CHECK(parse_counter("-2") == -2);
    CHECK(parse_counter("12abc") == 12);
    CHECK(parse_counter(" \t7") == 7);
    CHECK(parse_counter("+3") == 3);
    CHECK(parse_counter("9223372036854775807") == INT64_MAX);
    CHECK(parse_counter("-9223372036854775808") == INT64_MIN);
    for (const char* text : {"", " ", "abc", "+-3", "--3", "-", "99999999999999999999999"}) {
      CAPTURE(text);
      CHECK_FALSE(parse_counter(text).has_value());
    }
  }
}
