// SPDX-License-Identifier: MIT
// A client that sends whatever bytes a test likes.
#pragma once

#include <ddprun/error.h>

#include <string>
#include <string_view>

#include "net/socket.h"
#include "store/wire.h"

namespace ddprun::test {

class RawClient {
 public:
  explicit RawClient(std::uint16_t port)
      : fd_(connect_tcp("127.0.0.1", port, Deadline::after(std::chrono::seconds(20)))) {}

  void send(std::string_view bytes) {
    send_all(fd_.get(), std::as_bytes(std::span(bytes)), deadline());
  }

  std::string receive(std::size_t count) {
    std::string bytes(count, '\0');
    receive_all(fd_.get(), std::as_writable_bytes(std::span(bytes)), deadline());
    return bytes;
  }

  /// Waits for the server to close; false when it sends something instead.
  bool is_closed() {
    try {
      receive(1);
    } catch (const ConnectionError&) {
      return true;
    }
    return false;
  }

  int fd() const { return fd_.get(); }

  /// VALIDATE and PING of a current client.
  static std::string hello() {
    std::string out;
    put_opcode(out, Dialect::torch_2x, Operation::validate);
    put_u32(out, kValidateMagic);
    put_opcode(out, Dialect::torch_2x, Operation::ping);
    put_u32(out, 7);
    return out;
  }

  static std::string request(Operation operation, std::string_view key) {
    std::string out;
    put_opcode(out, Dialect::torch_2x, operation);
    put_bytes(out, key);
    return out;
  }

 private:
  static Deadline deadline() { return Deadline::after(std::chrono::seconds(20)); }

  UniqueFd fd_;
};

}  // namespace ddprun::test
