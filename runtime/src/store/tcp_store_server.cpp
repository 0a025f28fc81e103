// SPDX-License-Identifier: MIT
// The store's server: one thread that moves bytes between sockets and sessions; see
// tcp_store_server.h. What the bytes mean is in store_session.cpp.
#include "store/tcp_store_server.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <future>
#include <thread>
#include <unordered_map>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>

#include "base/log.h"
#include "net/endpoint.h"
#include "net/socket.h"
#include "store/store_session.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;
using Descriptor = asio::posix::stream_descriptor;

// Out of descriptors or memory: connections wait in the backlog meanwhile.
constexpr auto kAcceptPause = std::chrono::milliseconds(200);
// Others are served in between.
constexpr int kAcceptsPerTurn = 64;
constexpr int kReadsPerTurn = 8;

struct Connection {
  Connection(asio::io_context& io, UniqueFd fd, StoreMap& map, StoreMap::WaiterId connection_id)
      : peer(peer_text(fd.get())),
        socket(io, fd.get()),
        session(map, connection_id),
        id(connection_id) {
    fd.release();  // only now: the socket's constructor may throw
  }

  const std::string peer;  // a socket that was reset no longer knows it
  Descriptor socket;
  StoreSession session;
  const StoreMap::WaiterId id;
  bool reading = false;  // a wait for the socket is under way
  bool writing = false;
};
using ConnectionPtr = std::shared_ptr<Connection>;

/// At most one line a second, so that a stranger who knocks often does not fill the log.
class LimitedLog {
 public:
  void warn(const std::string& text) {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::seconds(1)) {
      ++held_back_;
      return;
    }
    last_ = now;
    const std::string more = held_back_ == 0 ? "" : fmt::format(" (and {} more)", held_back_);
    log(LogLevel::warning, "store", "{}{}", text, more);
    held_back_ = 0;
  }

 private:
  std::chrono::steady_clock::time_point last_{};
  int held_back_ = 0;
};

/// Starts a thread that no signal is delivered to: they are the program's.
template <class Fn>
std::thread start_without_signals(Fn fn) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(fn));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

class TcpStoreServer::Impl {
 public:
  explicit Impl(UniqueFd listener);
  ~Impl();
  std::uint16_t port() const { return port_; }
  void start_attempt();

 private:
  void await_clients();
  void accept_clients();
  void pause_accepting(const char* cause);
  void add_client(UniqueFd fd);
  void await_readable(const ConnectionPtr& connection);
  void await_writable(const ConnectionPtr& connection);
  void on_readable(const ConnectionPtr& connection);
  bool receive(const ConnectionPtr& connection);
  void answer(const ConnectionPtr& connection);
  void tell_others();
  void tell(StoreMap::WaiterId id, const std::function<void(StoreSession&)>& put);
  template <class Fn>
  void guard(const ConnectionPtr& connection, Fn fn);
  void drop(const ConnectionPtr& connection);

  const std::uint16_t port_;
  StoreMap map_;  // before io_, whose handlers keep sessions
  asio::io_context io_{1};
  Descriptor listener_;
  asio::steady_timer accept_timer_{io_};
  std::unordered_map<StoreMap::WaiterId, ConnectionPtr> connections_;
  StoreMap::WaiterId next_id_ = 0;
  LimitedLog log_;
  std::array<char, std::size_t{64} << 10> buffer_{};
  std::thread thread_;
};

TcpStoreServer::Impl::Impl(UniqueFd listener)
    : port_(local_port(listener.get())), listener_(io_, listener.release()) {
  listener_.non_blocking(true);
  await_clients();
  thread_ = start_without_signals([this] {
    ::pthread_setname_np(::pthread_self(), "ddprun-store");
    io_.run();
  });
}

TcpStoreServer::Impl::~Impl() {
  io_.stop();
  thread_.join();
}

void TcpStoreServer::Impl::start_attempt() {
  std::promise<void> done;
  asio::post(io_, [&] {
    map_.drop_worker_keys();
    const auto existing = connections_;
    for (const auto& [id, connection] : existing) {
      if (!connection->session.is_launcher()) drop(connection);
    }
    done.set_value();
  });
  done.get_future().wait();
}

void TcpStoreServer::Impl::await_clients() {
  listener_.async_wait(Descriptor::wait_read, [this](const boost::system::error_code& error) {
    if (!error) accept_clients();
  });
}

void TcpStoreServer::Impl::accept_clients() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    UniqueFd fd(
        ::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
      add_client(std::move(fd));
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return pause_accepting(std::strerror(errno));
    }
  }
  await_clients();
}

void TcpStoreServer::Impl::pause_accepting(const char* cause) {
  log_.warn(fmt::format("cannot accept a connection on port {}: {}; trying again", port_, cause));
  accept_timer_.expires_after(kAcceptPause);
  accept_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) await_clients();
  });
}

void TcpStoreServer::Impl::add_client(UniqueFd fd) {
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  try {
    const auto connection = std::make_shared<Connection>(io_, std::move(fd), map_, next_id_++);
    connections_.emplace(connection->id, connection);
    await_readable(connection);
  } catch (const std::exception& e) {  // no memory, or no room in epoll: the client tries again
    log_.warn(fmt::format("closing a new connection on port {}: {}", port_, e.what()));
  }
}

void TcpStoreServer::Impl::await_readable(const ConnectionPtr& connection) {
  connection->reading = true;
  connection->socket.async_wait(Descriptor::wait_read,
                                [this, connection](const boost::system::error_code& error) {
                                  connection->reading = false;
                                  if (!error) on_readable(connection);
                                });
}

void TcpStoreServer::Impl::await_writable(const ConnectionPtr& connection) {
  connection->writing = true;
  connection->socket.async_wait(Descriptor::wait_write,
                                [this, connection](const boost::system::error_code& error) {
                                  connection->writing = false;
                                  if (!error) answer(connection);
                                });
}

void TcpStoreServer::Impl::on_readable(const ConnectionPtr& connection) {
  // PyTorch's clients send a request in pieces: the rest of one is often there a moment later.
  for (int i = 0; i < kReadsPerTurn && receive(connection); ++i) {
    if (!connection->session.is_mid_request()) break;
  }
  answer(connection);
}

/// False when nothing came.
bool TcpStoreServer::Impl::receive(const ConnectionPtr& connection) {
  if (!connection->socket.is_open()) return false;
  const ssize_t n =
      ::recv(connection->socket.native_handle(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n <= 0) {
    drop(connection);
    return false;
  }
  guard(connection, [&] {
    connection->session.receive({buffer_.data(), static_cast<std::size_t>(n)});
  });
  return true;
}

/// Sends what the client can take and goes on listening to it when it is not behind.
void TcpStoreServer::Impl::answer(const ConnectionPtr& connection) {
  guard(connection, [&] {
    StoreSession& session = connection->session;
    while (!session.unsent().empty() && !connection->writing) {
      const auto bytes = session.unsent();
      const ssize_t n = ::send(connection->socket.native_handle(), bytes.data(), bytes.size(),
                               MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n >= 0)
        session.sent(static_cast<std::size_t>(n));
      else if (errno == EAGAIN)
        await_writable(connection);
      else if (errno != EINTR)
        return drop(connection);
    }
    if (!connection->reading && session.wants_input()) await_readable(connection);
  });
  tell_others();
}

/// One client's request can end the waits of others, or change a key that they watch.
void TcpStoreServer::Impl::tell_others() {
  for (const auto id : map_.take_released())
    tell(id, [](StoreSession& session) { session.on_released(); });
  for (const auto& change : map_.take_changes())
    tell(change.watcher, [&](StoreSession& session) { session.on_change(change); });
}

void TcpStoreServer::Impl::tell(StoreMap::WaiterId id,
                                const std::function<void(StoreSession&)>& put) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  const ConnectionPtr connection = found->second;
  guard(connection, [&] { put(connection->session); });
  asio::post(io_, [this, connection] { answer(connection); });
}

/// Whatever a client does costs its own connection only.
template <class Fn>
void TcpStoreServer::Impl::guard(const ConnectionPtr& connection, Fn fn) {
  if (!connection->socket.is_open()) return;
  try {
    fn();
  } catch (const std::exception& e) {  // ProtocolError, or no memory
    log_.warn(fmt::format("closing the connection from {}: {}", connection->peer, e.what()));
    const auto earlier = connection->session.unsent();  // answers to requests that were right
    ::send(connection->socket.native_handle(), earlier.data(), earlier.size(),
           MSG_DONTWAIT | MSG_NOSIGNAL);
    drop(connection);
  }
}

void TcpStoreServer::Impl::drop(const ConnectionPtr& connection) {
  map_.forget(connection->id);
  boost::system::error_code ignored;
  connection->socket.close(ignored);
  connections_.erase(connection->id);
}

TcpStoreServer::TcpStoreServer(UniqueFd listener)
    : impl_(std::make_unique<Impl>(std::move(listener))) {}
TcpStoreServer::~TcpStoreServer() = default;
std::uint16_t TcpStoreServer::port() const { return impl_->port(); }
void TcpStoreServer::start_attempt() { impl_->start_attempt(); }

}  // namespace ddprun
