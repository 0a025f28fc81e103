// SPDX-License-Identifier: MIT
// A client's connection to a store server: reaching it, agreeing on the protocol, moving messages.
#pragma once

#include <ddprun/deadline.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "store/wire.h"

namespace ddprun {

/// Requests and replies stay in step: an answer that comes too late is skipped, never taken for the
/// next one. Where that cannot be (a message was cut in the middle) the connection is lost, and
/// every later call throws ConnectionError.
/// Threads: not thread-safe.
/// Throws:  TimeoutError, ConnectionError.
class StoreConnection {
 public:
  /// Tries until the server is up, with back-off and jitter, and greets it; see connect_tcp_store.
  StoreConnection(const std::string& host, std::uint16_t port, Deadline deadline);

  void send(std::string_view bytes, Deadline deadline);
  /// The reply to one request.
  Message receive(Operation operation, Deadline deadline);

  /// Sends a WAIT; false when the deadline passed before its answer came. The wait is then
  /// cancelled.
  bool wait(std::string_view request, Deadline deadline);
  /// Sends `count` CHECKs in one go. Here a TimeoutError does no harm.
  std::vector<bool> check_each(std::string_view requests, std::size_t count, Deadline deadline);

 private:
  void greet(Deadline deadline);
  void skip_late_answers(Deadline deadline);
  std::uint8_t receive_byte(Deadline deadline);
  void fill(Deadline deadline);

  UniqueFd fd_;
  bool lost_ = false;
  bool cancel_answer_due_ = false;     // a CANCEL_WAIT is not answered yet
  std::size_t check_answers_due_ = 0;  // nor are these CHECKs
  std::vector<char> buffer_;
  std::string_view received_;  // the part of buffer_ that no message has taken yet
};

}  // namespace ddprun
