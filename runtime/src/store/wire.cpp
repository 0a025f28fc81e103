// SPDX-License-Identifier: MIT
// The bytes of the store's protocol; see wire.h. Tables and an example are in PROTOCOL.md.
#include "store/wire.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

#include <fmt/core.h>

namespace ddprun {
namespace {

static_assert(std::endian::native == std::endian::little, "the protocol is little-endian");

struct Opcode {
  Operation operation;
  int torch_2x;  // -1: this dialect does not have it
  int torch_1_13;
};

constexpr std::array kOpcodes = {
    Opcode{Operation::validate, 0, -1},     Opcode{Operation::set, 1, 0},
    Opcode{Operation::compare_set, 2, 1},   Opcode{Operation::get, 3, 2},
    Opcode{Operation::add, 4, 3},           Opcode{Operation::check, 5, 4},
    Opcode{Operation::wait, 6, 5},          Opcode{Operation::num_keys, 7, 6},
    Opcode{Operation::erase, 8, 8},         Opcode{Operation::append, 9, -1},
    Opcode{Operation::multi_get, 10, -1},   Opcode{Operation::multi_set, 11, -1},
    Opcode{Operation::cancel_wait, 12, -1}, Opcode{Operation::ping, 13, -1},
    Opcode{Operation::watch_key, -1, 7},
};

constexpr std::uint8_t kLastOpcode1_13 = 8;
constexpr std::uint8_t kValidateOpcode = 0;  // and SET of 1.13: the magic decides

// A key or value takes this much at once at most; the rest as it arrives.
constexpr std::size_t kFirstReserve = std::size_t{64} << 10;

int code_of(const Opcode& row, Dialect dialect) {
  return dialect == Dialect::torch_2x ? row.torch_2x : row.torch_1_13;
}

std::size_t width(Field field) {
  switch (field) {
    case Field::none:
      return 0;
    case Field::u8:
      return 1;
    case Field::u32:
      return 4;
    case Field::i64:
    case Field::key:
    case Field::value:
      return 8;
  }
  return 0;
}

template <class T>
void put_raw(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::uint64_t number_of(std::string_view bytes) {
  std::uint64_t number = 0;
  std::memcpy(&number, bytes.data(), bytes.size());
  return number;
}

/// Moves up to `wanted` bytes from the front of `bytes` to the end of `into`.
std::size_t move_bytes(std::string& into, std::string_view& bytes, std::size_t wanted) {
  const std::size_t n = std::min(wanted, bytes.size());
  into.append(bytes.substr(0, n));
  bytes.remove_prefix(n);
  return n;
}

}  // namespace

void put_u8(std::string& out, std::uint8_t value) { put_raw(out, value); }
void put_u32(std::string& out, std::uint32_t value) { put_raw(out, value); }
void put_u64(std::string& out, std::uint64_t value) { put_raw(out, value); }
void put_i64(std::string& out, std::int64_t value) { put_raw(out, value); }

void put_bytes(std::string& out, std::string_view bytes) {
  put_u64(out, bytes.size());
  out.append(bytes);
}

void put_opcode(std::string& out, Dialect dialect, Operation operation) {
  const auto row = std::find_if(kOpcodes.begin(), kOpcodes.end(),
                                [&](const Opcode& o) { return o.operation == operation; });
  put_u8(out, static_cast<std::uint8_t>(code_of(*row, dialect)));
}

Layout request_layout(Operation operation) {
  switch (operation) {
    case Operation::validate:
    case Operation::ping:
      return {{Field::u32}};
    case Operation::set:
    case Operation::append:
      return {{Field::key, Field::value}};
    case Operation::compare_set:
      return {{Field::key, Field::value, Field::value}};
    case Operation::get:
    case Operation::erase:
    case Operation::watch_key:
      return {{Field::key}};
    case Operation::add:
      return {{Field::key, Field::i64}};
    case Operation::check:
    case Operation::wait:
    case Operation::multi_get:
      return {{Field::key}, true};
    case Operation::multi_set:
      return {{Field::key, Field::value}, true};
    case Operation::num_keys:
    case Operation::cancel_wait:
      return {};
  }
  return {};
}

Layout reply_layout(Operation operation) {
  switch (operation) {
    case Operation::validate:
    case Operation::set:
    case Operation::append:
    case Operation::multi_set:
      return {};
    case Operation::compare_set:
    case Operation::get:
    case Operation::multi_get:
      return {{Field::value}};
    case Operation::add:
    case Operation::num_keys:
    case Operation::erase:
      return {{Field::i64}};
    case Operation::check:
    case Operation::wait:
    case Operation::cancel_wait:
    case Operation::watch_key:
      return {{Field::u8}};
    case Operation::ping:
      return {{Field::u32}};
  }
  return {};
}

MessageReader::MessageReader(Layout layout, std::size_t repeat)
    : layout_(layout),
      rounds_left_(layout.fields[0] == Field::none ? 0 : repeat),
      count_missing_(layout.counted) {}

void MessageReader::read(std::string_view& bytes) {
  while (!done() && !bytes.empty()) {
    if (body_left_ > 0)
      read_body(bytes);
    else
      read_number(bytes);
  }
}

void MessageReader::read_number(std::string_view& bytes) {
  const std::size_t size = count_missing_ ? sizeof(std::uint64_t) : width(layout_.fields[field_]);
  move_bytes(number_, bytes, size - number_.size());
  if (number_.size() < size) return;
  const std::uint64_t number = number_of(number_);
  number_.clear();
  on_number(number);
}

void MessageReader::on_number(std::uint64_t number) {
  if (count_missing_) {
    if (number > kMaxKeyCount)
      throw ProtocolError(fmt::format("a count of {} keys (at most {})", number, kMaxKeyCount));
    rounds_left_ = static_cast<std::size_t>(number);
    count_missing_ = false;
    return;
  }
  const Field field = layout_.fields[field_];
  if (field == Field::key || field == Field::value) {
    begin_body(field, number);
  } else {
    message_.number = static_cast<std::int64_t>(number);
    next_field();
  }
}

void MessageReader::begin_body(Field field, std::uint64_t length) {
  const bool is_key = field == Field::key;
  const std::size_t limit = is_key ? kMaxKeyBytes : kMaxValueBytes;
  if (length > limit)
    throw ProtocolError(
        fmt::format("a {} of {} bytes (at most {})", is_key ? "key" : "value", length, limit));
  body_left_ = static_cast<std::size_t>(length);
  total_ += body_left_;
  if (total_ > kMaxMessageBytes)
    throw ProtocolError(fmt::format("a message of over {} bytes", kMaxMessageBytes));
  std::string& body = (is_key ? message_.keys : message_.values).emplace_back();
  body.reserve(std::min(body_left_, kFirstReserve));
  if (body_left_ == 0) next_field();
}

void MessageReader::read_body(std::string_view& bytes) {
  const bool is_key = layout_.fields[field_] == Field::key;
  std::string& body = (is_key ? message_.keys : message_.values).back();
  body_left_ -= move_bytes(body, bytes, body_left_);
  if (body_left_ == 0) next_field();
}

void MessageReader::next_field() {
  ++field_;
  if (field_ < layout_.fields.size() && layout_.fields[field_] != Field::none) return;
  field_ = 0;
  --rounds_left_;
}

std::optional<Request> RequestReader::read(std::string_view& bytes) {
  if (!dialect_) read_hello(bytes);
  if (!dialect_) return std::nullopt;
  if (!message_) {
    if (bytes.empty()) return std::nullopt;
    const auto opcode = static_cast<std::uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    begin(opcode);
  }
  message_->read(bytes);
  if (!message_->done()) return std::nullopt;
  Request request{message_->take(), operation_};
  message_.reset();
  return request;
}

void RequestReader::read_hello(std::string_view& bytes) {
  if (bytes.empty()) return;
  const auto first = static_cast<std::uint8_t>(hello_.empty() ? bytes.front() : hello_.front());
  if (first > kLastOpcode1_13)
    throw ProtocolError(fmt::format("first byte {:#04x}, which no store client sends", first));
  if (first != kValidateOpcode) {
    dialect_ = Dialect::torch_1_13;
    return;
  }
  move_bytes(hello_, bytes, 1 + sizeof kValidateMagic - hello_.size());
  if (hello_.size() < 1 + sizeof kValidateMagic) return;
  std::string_view rest = std::string_view(hello_).substr(1);
  const std::uint64_t number = number_of(rest);
  if (number == kValidateMagic) {
    dialect_ = Dialect::torch_2x;
    return;
  }
  // Then it is the SET of 1.13 and these are the low bytes of its key's length.
  if (number > kMaxKeyBytes)
    throw ProtocolError(fmt::format("VALIDATE with the wrong magic {:#010x}", number));
  dialect_ = Dialect::torch_1_13;
  begin(first);
  message_->read(rest);
}

void RequestReader::begin(std::uint8_t opcode) {
  const auto row = std::find_if(kOpcodes.begin(), kOpcodes.end(),
                                [&](const Opcode& o) { return code_of(o, *dialect_) == opcode; });
  if (row == kOpcodes.end() || row->operation == Operation::validate)
    throw ProtocolError(fmt::format("opcode {} is not supported", opcode));
  operation_ = row->operation;
  message_.emplace(request_layout(operation_));
}

std::optional<std::int64_t> parse_counter(std::string_view text) {
  const auto start = text.find_first_not_of(" \t\n\v\f\r");
  if (start == std::string_view::npos) return std::nullopt;
  text.remove_prefix(start);
  if (text.front() == '+') {
    text.remove_prefix(1);
    if (text.starts_with('-')) return std::nullopt;
  }
  std::int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc()) return std::nullopt;
  return value;
}

}  // namespace ddprun
