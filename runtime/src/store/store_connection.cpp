// SPDX-License-Identifier: MIT
// A client's connection to a store server; see store_connection.h and PROTOCOL.md.
#include "store/store_connection.h"

#include <ddprun/error.h>

#include <random>
#include <thread>
#include <utility>

#include <fmt/core.h>
#include <unistd.h>

#include "net/endpoint.h"
#include "net/socket.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstDelay{20};
constexpr milliseconds kLongestDelay{1000};
// A name is looked up again after this long: its address may have changed.
constexpr milliseconds kConnectAttempt{10'000};
// A full backlog can close a connection right after it was made; a server that does nothing else
// for this long is not a store.
constexpr milliseconds kClosingServer{10'000};
constexpr milliseconds kFirstPatience{1000};
constexpr milliseconds kLongestPatience{30'000};
constexpr std::size_t kBufferBytes = std::size_t{64} << 10;

/// What the attempts to reach a server have seen so far, and when the next one is due. Delays grow,
/// each drawn from half to one and a half of its mean, so that a thousand ranks that start together
/// do not knock together.
class Attempts {
 public:
  explicit Attempts(std::string server) : server_(std::move(server)) {}

  void begin() { connected_ = false; }
  void connected() { connected_ = true; }

  /// How long to wait for the answer to a greeting. When many connect at once the kernel can drop
  /// the end of a handshake, and then repeats it ever more rarely: a new connection is faster.
  milliseconds patience() {
    return std::exchange(patience_, std::min(patience_ * 2, kLongestPatience));
  }

  void failed(const Error& error) {
    cause_ = error.what();
    silent_ = connected_ && dynamic_cast<const TimeoutError*>(&error) != nullptr;
    const bool closes = connected_ && !silent_;
    if (!closes)
      closing_ = Deadline::never();
    else if (closing_.is_never())
      closing_ = Deadline::after(kClosingServer);
  }

  /// Sleeps, but not past the deadline; false when there is nothing to wait for any more.
  bool pause(Deadline deadline) {
    if (closing_.expired()) return false;
    std::uniform_real_distribution<double> factor(0.5, 1.5);
    const milliseconds delay(
        static_cast<int>(static_cast<double>(delay_.count()) * factor(random_)));
    std::this_thread::sleep_for(std::min(delay, deadline.remaining()));
    delay_ = std::min(delay_ * 3 / 2, kLongestDelay);
    return !deadline.expired();
  }

  [[noreturn]] void give_up() const {
    if (silent_)
      throw TimeoutError(
          fmt::format("[store] connect: {} accepts connections but does not answer: "
                      "it is stopped, or is not a store; check host and port",
                      server_));
    if (!closing_.is_never())
      throw ConnectionError(
          fmt::format("[store] connect: {} closes every connection: it is not a "
                      "store, or that of a PyTorch before 2.5 ({})",
                      server_, cause_));
    throw ConnectionError(
        fmt::format("[store] connect: {} was not reached in time: {}", server_, cause_));
  }

 private:
  const std::string server_;
  bool connected_ = false;                // the attempt under way has got that far
  bool silent_ = false;                   // the last attempt got no answer
  Deadline closing_ = Deadline::never();  // runs while the server accepts and closes
  std::string cause_;
  milliseconds patience_ = kFirstPatience;
  milliseconds delay_ = kFirstDelay;
  std::minstd_rand random_{std::random_device{}()};
};

/// Old servers take VALIDATE and PING for a SET whose key length ends in the nonce: with bits 16
/// to 23 set they see an absurd length and close at once, instead of allocating it.
std::uint32_t make_nonce() {
  return 0x00FF0000U | (static_cast<std::uint32_t>(::getpid()) & 0xFFFFU);
}

}  // namespace

StoreConnection::StoreConnection(const std::string& host, std::uint16_t port, Deadline deadline)
    : buffer_(kBufferBytes) {
  Attempts attempts(host_and_port(host, port));
  do {
    try {
      attempts.begin();
      fd_ = connect_tcp(host, port, min(deadline, Deadline::after(kConnectAttempt)));
      attempts.connected();
      greet(min(deadline, Deadline::after(attempts.patience())));
      return;
    } catch (const ProtocolError& e) {
      throw ConnectionError(
          fmt::format("[store] connect: {} is not a store: {}; check host and "
                      "port",
                      host_and_port(host, port), e.what()));
    } catch (const Error& e) {
      attempts.failed(e);
    }
  } while (attempts.pause(deadline));
  attempts.give_up();
}

void StoreConnection::greet(Deadline deadline) {
  lost_ = false;
  received_ = {};
  std::string hello;
  put_opcode(hello, Dialect::torch_2x, Operation::validate);
  put_u32(hello, kValidateMagic);
  put_opcode(hello, Dialect::torch_2x, Operation::ping);
  put_u32(hello, make_nonce());
  send(hello, deadline);
  const Message pong = receive(Operation::ping, deadline);
  if (pong.number != make_nonce())
    throw ProtocolError(
        fmt::format("it answers {:#010x} to a PING of {:#010x}", pong.number, make_nonce()));
}

void StoreConnection::send(std::string_view bytes, Deadline deadline) {
  if (lost_) throw ConnectionError("the connection was given up after an earlier error");
  lost_ = true;
  send_all(fd_.get(), std::as_bytes(std::span(bytes)), deadline);
  lost_ = false;
}

Message StoreConnection::receive(Operation operation, Deadline deadline) {
  lost_ = true;
  skip_late_answers(deadline);
  MessageReader reader(reply_layout(operation));
  reader.read(received_);
  while (!reader.done()) {
    fill(deadline);
    reader.read(received_);
  }
  lost_ = false;
  return reader.take();
}

bool StoreConnection::wait(std::string_view request, Deadline deadline) {
  bool sent = false;
  try {
    skip_late_answers(deadline);
    send(request, deadline);
    sent = true;
    if (receive_byte(deadline) == kStopWaiting) return true;
  } catch (const TimeoutError&) {
    if (!sent) return false;
    std::string cancel;
    put_opcode(cancel, Dialect::torch_2x, Operation::cancel_wait);
    send(cancel, deadline);
    cancel_answer_due_ = true;
    return false;
  }
  lost_ = true;
  throw ProtocolError("a WAIT was not answered by 0");
}

std::vector<bool> StoreConnection::check_each(std::string_view requests, std::size_t count,
                                              Deadline deadline) {
  skip_late_answers(deadline);
  send(requests, deadline);
  check_answers_due_ = count;
  std::vector<bool> ready;
  while (check_answers_due_ > 0) {
    ready.push_back(receive_byte(deadline) == kKeysReady);
    --check_answers_due_;
  }
  return ready;
}

/// A wait that ended just before it was cancelled has its answer before the one to CANCEL_WAIT.
void StoreConnection::skip_late_answers(Deadline deadline) {
  while (cancel_answer_due_) cancel_answer_due_ = receive_byte(deadline) != kWaitCanceled;
  for (; check_answers_due_ > 0; --check_answers_due_) receive_byte(deadline);
}

std::uint8_t StoreConnection::receive_byte(Deadline deadline) {
  if (received_.empty()) fill(deadline);
  const auto byte = static_cast<std::uint8_t>(received_.front());
  received_.remove_prefix(1);
  return byte;
}

/// Called when everything received so far has been taken.
void StoreConnection::fill(Deadline deadline) {
  const auto into = std::as_writable_bytes(std::span(buffer_));
  received_ = {buffer_.data(), receive_some(fd_.get(), into, deadline)};
}

}  // namespace ddprun
