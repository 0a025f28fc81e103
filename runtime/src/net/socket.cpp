// SPDX-License-Identifier: MIT
// TCP sockets with deadlines; see socket.h.
#include "net/socket.h"

#include <ddprun/error.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "net/endpoint.h"

namespace ddprun {
namespace {

// An address that drops packets must not eat the time of those after it.
constexpr auto kAttemptOfSeveral = std::chrono::seconds(3);

UniqueFd open_socket(int family) {
  return UniqueFd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

void set_option(int fd, int level, int option, int value) {
  ::setsockopt(fd, level, option, &value, sizeof value);  // all of ours are improvements only
}

/// Returns 0 or errno.
int listen_on(const Endpoint& endpoint, UniqueFd& out) {
  UniqueFd fd = open_socket(endpoint.family());
  if (!fd) return errno;
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (endpoint.family() == AF_INET6) set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(fd.get(), endpoint.raw(), endpoint.length) != 0) return errno;
  // The kernel cuts a larger backlog to net.core.somaxconn.
  if (::listen(fd.get(), 65535) != 0) return errno;
  out = std::move(fd);
  return 0;
}

/// Waits for `events`; false when the deadline passed first.
bool wait_ready(int fd, short events, Deadline deadline) {
  pollfd entry{fd, events, 0};
  for (;;) {
    const auto left = deadline.remaining();
    const int n = ::poll(&entry, 1, static_cast<int>(left.count()));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR)
      throw ConnectionError(fmt::format("[net] poll: {}", std::strerror(errno)));
    if (n == 0 && deadline.expired()) return false;
  }
}

/// Linux can connect a socket to itself when nobody listens on a port that it may choose as the
/// local one; a server that starts later then finds its port taken.
bool connected_to_itself(int fd) { return local_text(fd) == peer_text(fd); }

/// Returns 0 or errno.
int connect_to(const Endpoint& endpoint, Deadline deadline, UniqueFd& out) {
  UniqueFd fd = open_socket(endpoint.family());
  if (!fd) return errno;
  set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  if (::connect(fd.get(), endpoint.raw(), endpoint.length) != 0) {
    if (errno != EINPROGRESS) return errno;
    if (!wait_ready(fd.get(), POLLOUT, deadline)) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return error;
  }
  if (connected_to_itself(fd.get())) return ECONNREFUSED;
  out = std::move(fd);
  return 0;
}

[[noreturn]] void throw_lost(int fd, const char* operation, const std::string& why) {
  const std::string peer = peer_text(fd);
  const std::string who = peer != "?" ? peer : "the peer of " + local_text(fd);
  throw ConnectionError(fmt::format("[net] {}: connection to {} lost: {}", operation, who, why));
}

void wait_or_throw(int fd, short events, Deadline deadline, const char* operation) {
  if (!wait_ready(fd, events, deadline))
    throw TimeoutError(
        fmt::format("[net] {}: no progress with {} before the deadline", operation, peer_text(fd)));
}

}  // namespace

UniqueFd listen_tcp(const std::string& host, std::uint16_t port) {
  std::vector<Endpoint> endpoints;
  try {
    endpoints = resolve(host, port, EndpointUse::listen);
  } catch (const ConnectionError& e) {
    throw UsageError(e.what());
  }
  int error = EADDRNOTAVAIL;
  for (const Endpoint& endpoint : endpoints) {
    UniqueFd fd;
    error = listen_on(endpoint, fd);
    if (error == 0) return fd;
    if (error == EADDRINUSE) break;  // another family would hide that the port is taken
  }
  const std::string where = host_and_port(host.empty() ? "*" : host, port);
  if (error == EADDRNOTAVAIL)
    throw UsageError(fmt::format(
        "[net] listen: {} is not an address of this machine; give one of its own", where));
  throw ConnectionError(fmt::format("[net] listen: cannot listen on {}: {}; choose another port",
                                    where, std::strerror(error)));
}

std::uint16_t local_port(int fd) {
  Endpoint end;
  if (::getsockname(fd, end.raw(), &end.length) != 0)
    throw ConnectionError(fmt::format("[net] local_port: {}", std::strerror(errno)));
  return end.port();
}

UniqueFd connect_tcp(const std::string& host, std::uint16_t port, Deadline deadline) {
  const auto endpoints = resolve(host, port, EndpointUse::connect);
  std::string tried;
  for (std::size_t i = 0; i < endpoints.size(); ++i) {
    const auto left = static_cast<int>(endpoints.size() - i);
    Deadline part = min(deadline, Deadline::after(deadline.remaining() / left));
    if (left > 1) part = min(part, Deadline::after(kAttemptOfSeveral));
    UniqueFd fd;
    const int error = connect_to(endpoints[i], part, fd);
    if (error == 0) return fd;
    tried +=
        fmt::format("{}{}: {}", i == 0 ? "" : ", ", to_string(endpoints[i]), std::strerror(error));
  }
  throw ConnectionError(
      fmt::format("[net] connect: cannot reach {} ({}); is it up and not "
                  "behind a firewall?",
                  host_and_port(host, port), tried));
}

void send_all(int fd, std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0)
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    else if (errno == EAGAIN)
      wait_or_throw(fd, POLLOUT, deadline, "send");
    else if (errno != EINTR)
      throw_lost(fd, "send", std::strerror(errno));
  }
}

std::size_t receive_some(int fd, std::span<std::byte> into, Deadline deadline) {
  for (;;) {
    const ssize_t n = ::recv(fd, into.data(), into.size(), MSG_DONTWAIT);
    if (n > 0) return static_cast<std::size_t>(n);
    if (n == 0) throw_lost(fd, "receive", "the peer closed it");
    if (errno == EAGAIN)
      wait_or_throw(fd, POLLIN, deadline, "receive");
    else if (errno != EINTR)
      throw_lost(fd, "receive", std::strerror(errno));
  }
}

void receive_all(int fd, std::span<std::byte> into, Deadline deadline) {
  while (!into.empty()) into = into.subspan(receive_some(fd, into, deadline));
}

}  // namespace ddprun
