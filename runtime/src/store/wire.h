// SPDX-License-Identifier: MIT
// The bytes of the store's protocol (PROTOCOL.md): writing and reading messages, without sockets.
#pragma once

#include <ddprun/error.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

/// Which PyTorch a client belongs to; its opcodes and its handshake differ.
enum class Dialect : std::uint8_t { torch_1_13, torch_2x };

enum class Operation : std::uint8_t {
  validate,
  set,
  compare_set,
  get,
  add,
  check,
  wait,
  num_keys,
  erase,
  append,
  multi_get,
  multi_set,
  cancel_wait,
  ping,
  watch_key,
};

inline constexpr std::uint32_t kValidateMagic = 0x3C85F7CE;
inline constexpr std::size_t kMaxKeyBytes = std::size_t{64} << 10;
inline constexpr std::size_t kMaxValueBytes = std::size_t{64} << 20;
inline constexpr std::size_t kMaxKeyCount = std::size_t{128} << 10;
/// Bound of one whole message, in keys and values; a COMPARE_SET of the largest values fits.
inline constexpr std::size_t kMaxMessageBytes = std::size_t{256} << 20;

/// The one-byte answers.
inline constexpr std::uint8_t kKeysReady = 0;     // to CHECK
inline constexpr std::uint8_t kKeysNotReady = 1;  // to CHECK
inline constexpr std::uint8_t kStopWaiting = 0;   // to WAIT
inline constexpr std::uint8_t kWaitCanceled = 1;  // to CANCEL_WAIT
inline constexpr std::uint8_t kWatching = 3;      // to WATCH_KEY

/// The other side does not keep to the protocol; the only answer is to close.
class ProtocolError : public ConnectionError {
 public:
  using ConnectionError::ConnectionError;
};

void put_u8(std::string& out, std::uint8_t value);
void put_u32(std::string& out, std::uint32_t value);
void put_u64(std::string& out, std::uint64_t value);
void put_i64(std::string& out, std::int64_t value);
/// A string or vector: its length, then its bytes.
void put_bytes(std::string& out, std::string_view bytes);
/// Every request begins with its opcode. The dialect must have the operation.
void put_opcode(std::string& out, Dialect dialect, Operation operation);

/// The fields of a request or reply, in the order in which they come.
struct Message {
  std::vector<std::string> keys;
  std::vector<std::string> values;
  std::int64_t number = 0;  // increment, sum, count, nonce or one-byte answer
};

enum class Field : std::uint8_t { none, u8, u32, i64, key, value };

struct Layout {
  std::array<Field, 3> fields{};
  bool counted = false;  // a u64 comes first: how often the fields are repeated
};

Layout request_layout(Operation operation);
/// Empty fields for an operation without reply. MULTI_GET's reply has no count of its own.
Layout reply_layout(Operation operation);

/// Reads one message out of a stream that may be cut anywhere. Lengths and counts are checked when
/// they arrive; memory grows with the bytes that really come.
class MessageReader {
 public:
  explicit MessageReader(Layout layout, std::size_t repeat = 1);

  /// Takes what belongs to the message off the front of `bytes`. Throws: ProtocolError.
  void read(std::string_view& bytes);
  bool done() const { return rounds_left_ == 0 && !count_missing_; }
  Message take() { return std::move(message_); }

 private:
  void read_number(std::string_view& bytes);
  void read_body(std::string_view& bytes);
  void on_number(std::uint64_t number);
  void begin_body(Field field, std::uint64_t length);
  void next_field();

  Layout layout_;
  std::size_t rounds_left_;
  bool count_missing_;
  std::size_t field_ = 0;
  std::string number_;         // the bytes of a number that is not complete yet
  std::size_t body_left_ = 0;  // bytes of the current key or value that are still to come
  std::size_t total_ = 0;
  Message message_;
};

struct Request : Message {
  Operation operation = Operation::ping;
};

/// Reads the requests of one client; its first bytes tell the dialect.
class RequestReader {
 public:
  /// Takes bytes off the front of `bytes`, at most to the end of one request; empty when that has
  /// not come yet. The handshake's VALIDATE is consumed here. Throws: ProtocolError.
  std::optional<Request> read(std::string_view& bytes);
  /// Empty until the first bytes have told it.
  std::optional<Dialect> dialect() const { return dialect_; }
  bool is_mid_request() const { return message_.has_value(); }

 private:
  void read_hello(std::string_view& bytes);
  void begin(std::uint8_t opcode);

  std::optional<Dialect> dialect_;
  std::string hello_;
  Operation operation_ = Operation::ping;
  std::optional<MessageReader> message_;
};

/// A counter's text as C's strtoll reads it: leading blanks, a sign, trailing rubbish; empty when
/// there is no number or it is out of range.
std::optional<std::int64_t> parse_counter(std::string_view text);

}  // namespace ddprun
