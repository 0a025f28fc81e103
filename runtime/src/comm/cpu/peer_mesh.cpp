// SPDX-License-Identifier: MIT
// Abstract unix sockets, credentials and descriptors in flight; see peer_mesh.h.
#include "comm/cpu/peer_mesh.h"

#include <ddprun/error.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace ddprun {
namespace {

constexpr std::chrono::milliseconds kSlice(50);
constexpr std::chrono::milliseconds kRetry(2);  // after the kernel has refused a descriptor
// A rank that has left because of another may be seen to have left before that one.
constexpr std::chrono::milliseconds kCulpritIsSeen(1000);
constexpr std::size_t kTokenBytes = 32;

// First on every connection, from the higher rank.
struct Greeting {
  std::int32_t rank;
  char token[kTokenBytes];
};

// One memory. To another process goes the descriptor; within one process goes, as an address, a
// share of the mapping itself, which the receiver takes over.
struct Parcel {
  std::uint64_t bytes;
  std::shared_ptr<Segment>* segment;
};

std::string cause() { return std::strerror(errno); }

struct Address {
  sockaddr_un name{};
  socklen_t length;
  explicit Address(const std::string& token) {
    const auto text = "ddprun." + token;
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path + 1, text.data(), text.size());
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

UniqueFd make_socket(int flags) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
  if (!fd) throw ConnectionError(fmt::format("[cpu] unix socket: {}", cause()));
  return fd;
}

ucred credentials(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length);
  return peer;
}

// A message without a descriptor has fd -1. Empty when nothing is there; at the end of the
// connection `closed`.
struct Message {
  Parcel parcel{};
  UniqueFd fd;
  bool closed = false;
};
std::optional<Message> receive_message(int socket) {
  Message message;
  iovec data{&message.parcel, sizeof message.parcel};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  auto got = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (got < 0 && errno == ECONNRESET)  // once, before what the peer had sent
    got = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  message.closed = got != static_cast<ssize_t>(sizeof message.parcel);
  const cmsghdr* const entry = CMSG_FIRSTHDR(&header);
  if (entry != nullptr && entry->cmsg_type == SCM_RIGHTS) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(entry), sizeof fd);
    message.fd.reset(fd);
  }
  return message;
}

}  // namespace

std::string random_token() {
  std::array<unsigned char, kTokenBytes / 2> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw DeviceError(fmt::format("[cpu] getrandom: {}", cause()));
  std::string token;
  for (const unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

UniqueFd listen_for_peers(const std::string& token) {
  UniqueFd fd = make_socket(SOCK_NONBLOCK);
  const Address address(token);
  if (::bind(fd.get(), address.get(), address.length) != 0 || ::listen(fd.get(), SOMAXCONN) != 0)
    throw ConnectionError(fmt::format("[cpu] listening for other ranks: {}", cause()));
  return fd;
}

PeerMesh::PeerMesh(int rank, std::vector<std::string> tokens, UniqueFd listener, Deadline deadline)
    : rank_(rank), tokens_(std::move(tokens)), peers_(tokens_.size()) {
  for (int r = 0; r < rank_; ++r) adopt(r, connect_to(r, deadline));
  accept_higher_ranks(listener.get(), deadline);
}

PeerMesh::~PeerMesh() {
  for (Peer& peer : peers_) {
    if (!peer.socket || !peer.same_process) continue;
    ::shutdown(peer.socket.get(), SHUT_RD);  // what is sent from now on fails at the sender
    while (auto message = receive_message(peer.socket.get())) {
      if (message->closed) break;
      delete message->parcel.segment;  // a share that was on its way
    }
  }
}

UniqueFd PeerMesh::connect_to(int rank, Deadline deadline) const {
  const std::string& token = tokens_[static_cast<std::size_t>(rank)];
  UniqueFd fd = make_socket(0);
  const Address address(token);
  const auto left = deadline.remaining();  // while its backlog is full, connecting waits
  const timeval limit{left.count() / 1000, (left.count() % 1000) * 1000 + 1};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (::connect(fd.get(), address.get(), address.length) != 0)
    throw ConnectionError(fmt::format("[cpu] connecting to rank {}: {}", rank, cause()));
  Greeting greeting{rank_, {}};
  std::memcpy(greeting.token, token.data(), kTokenBytes);
  if (::send(fd.get(), &greeting, sizeof greeting, MSG_NOSIGNAL) != sizeof greeting)
    throw ConnectionError(fmt::format("[cpu] greeting rank {}: {}", rank, cause()));
  return fd;
}

void PeerMesh::accept_higher_ranks(int listener, Deadline deadline) {
  const std::string& token = tokens_[static_cast<std::size_t>(rank_)];
  const auto size = static_cast<int>(peers_.size());
  std::vector<UniqueFd> unknown;  // connected, not yet greeted
  for (int missing = size - 1 - rank_; missing > 0;) {
    std::vector<pollfd> entries{{listener, POLLIN, 0}};
    for (const UniqueFd& fd : unknown) entries.push_back({fd.get(), POLLIN, 0});
    ::poll(entries.data(), entries.size(), static_cast<int>(deadline.remaining().count()));
    for (std::size_t i = entries.size(); i-- > 1;) {
      if (entries[i].revents == 0) continue;
      UniqueFd fd = std::move(unknown[i - 1]);
      unknown.erase(unknown.begin() + static_cast<std::ptrdiff_t>(i - 1));
      Greeting greeting{};
      const bool whole =
          ::recv(fd.get(), &greeting, sizeof greeting, MSG_DONTWAIT) == sizeof greeting;
      if (!whole || std::memcmp(greeting.token, token.data(), kTokenBytes) != 0 ||
          greeting.rank <= rank_ || greeting.rank >= size ||
          peers_[static_cast<std::size_t>(greeting.rank)].socket)
        continue;  // a stranger
      adopt(greeting.rank, std::move(fd));
      --missing;
    }
    if (entries[0].revents != 0) {
      UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
      if (fd && credentials(fd.get()).uid == ::geteuid()) unknown.push_back(std::move(fd));
    }
    if (missing > 0 && deadline.expired()) {
      std::vector<int> absent;
      for (int r = rank_ + 1; r < size; ++r)
        if (!peers_[static_cast<std::size_t>(r)].socket) absent.push_back(r);
      throw TimeoutError(fmt::format("[cpu] set-up: ranks {} did not connect to rank {} in time",
                                     fmt::join(absent, ", "), rank_));
    }
  }
}

void PeerMesh::adopt(int rank, UniqueFd socket) {
  const ucred peer = credentials(socket.get());
  if (peer.uid != ::geteuid())
    throw ConnectionError(
        fmt::format("[cpu] rank {} runs as user {}, this rank as user {}; they cannot share memory",
                    rank, peer.uid, ::geteuid()));
  const bool same_process = peer.pid == ::getpid();
  peers_[static_cast<std::size_t>(rank)] = {std::move(socket), same_process ? 0 : peer.pid,
                                            same_process};
}

std::vector<pid_t> PeerMesh::pids() const {
  std::vector<pid_t> pids;
  for (const Peer& peer : peers_) pids.push_back(peer.pid);
  return pids;
}

// Receives between sending: descriptors on their way count against RLIMIT_NOFILE for all of the
// user's processes together, and n ranks would have n * (n - 1) of them on their way. Each begins
// with the next rank, so that not all send to the same one. What a faster rank hands over for the
// next time is received too: on its way it would keep out what is waited for.
//
// Who leaves because another one left has handed its memory to all others before that: the rank to
// blame is one that left without. It closes one socket after the other, so that it may be seen
// last.
std::vector<std::shared_ptr<Segment>> PeerMesh::share(const std::shared_ptr<Segment>& own, int fd,
                                                      std::size_t bytes,
                                                      const std::function<void()>& look,
                                                      Deadline deadline) {
  const std::size_t size = peers_.size();
  const auto self = static_cast<std::size_t>(rank_);
  std::vector<std::shared_ptr<Segment>> all(size);
  all[self] = own;
  std::vector<bool> sent(size);
  sent[self] = true;
  int gone = -1;  // a rank that has closed its socket, which takes nothing
  Deadline blame_gone_at = Deadline::never();
  for (;;) {
    int refused = 0;
    int left = -1;  // one that has closed it and handed over nothing
    const auto receive = [&](std::size_t from) {
      drain(static_cast<int>(from));
      if (all[from]) return;
      all[from] = take(static_cast<int>(from), bytes);
      if (!all[from] && peers_[from].closed) left = static_cast<int>(from);
    };
    for (std::size_t i = 1; i < size; ++i) {
      const std::size_t to = (self + i) % size;
      if (!sent[to] && refused == 0) {
        const int error = try_send(static_cast<int>(to), own, fd, bytes);
        const bool closed = error == EPIPE || error == ECONNRESET;
        if (!closed) refused = error;
        if (closed && gone < 0) {
          gone = static_cast<int>(to);
          blame_gone_at = Deadline::after(kCulpritIsSeen);
        }
        sent[to] = refused == 0;
      }
      receive((self + size - i) % size);
    }
    if (left >= 0) throw_left(left, look);
    const bool complete = std::find(all.begin(), all.end(), nullptr) == all.end();
    if (complete && refused == 0) return all;
    if (blame_gone_at.expired()) throw_left(gone, look);
    look();
    if (deadline.expired()) throw_late(all, refused);
    // Nothing tells that others have received: looked for again soon.
    const auto slice = std::min(refused == 0 ? kSlice : kRetry, deadline.remaining());
    std::vector<pollfd> entries;
    for (const Peer& peer : peers_)
      if (peer.socket && !peer.closed && peer.arrived.empty())
        entries.push_back({peer.socket.get(), POLLIN, 0});
    ::poll(entries.data(), entries.size(), static_cast<int>(slice.count()));
  }
}

void PeerMesh::throw_late(const std::vector<std::shared_ptr<Segment>>& all, int refused) const {
  if (refused != 0)
    throw TimeoutError(fmt::format(
        "[cpu] handing memory to other ranks: {} until the deadline; raise the limit on open files "
        "(ulimit -n), which is also that on a user's descriptors in flight",
        std::strerror(refused)));
  std::vector<std::ptrdiff_t> late;
  for (auto it = all.begin(); it != all.end(); ++it)
    if (!*it) late.push_back(it - all.begin());
  throw TimeoutError(fmt::format("[cpu] waiting for memory of rank(s) {}: deadline passed",
                                 fmt::join(late, ", ")));
}

// A rank that fails records why before it closes its sockets, once it can: that is the cause.
void PeerMesh::throw_left(int rank, const std::function<void()>& look) const {
  look();
  throw RemoteError(
      rank, fmt::format("[cpu] sharing memory: rank {} has left or died; see its output", rank));
}

int PeerMesh::try_send(int rank, const std::shared_ptr<Segment>& own, int fd,
                       std::size_t bytes) const {
  const Peer& peer = peers_[static_cast<std::size_t>(rank)];
  auto share_of_own = peer.same_process ? std::make_unique<std::shared_ptr<Segment>>(own) : nullptr;
  Parcel parcel{bytes, share_of_own.get()};
  iovec data{&parcel, sizeof parcel};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof fd)> control{};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (!peer.same_process) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* const entry = CMSG_FIRSTHDR(&header);
    entry->cmsg_level = SOL_SOCKET;
    entry->cmsg_type = SCM_RIGHTS;
    entry->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(entry), &fd, sizeof fd);
  }
  if (::sendmsg(peer.socket.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    const int error = errno;
    for (const int known : {ETOOMANYREFS, EAGAIN, ENOBUFS, EINTR, EPIPE, ECONNRESET})
      if (error == known) return error;
    throw DeviceError(
        fmt::format("[cpu] handing memory to rank {}: {}", rank, std::strerror(error)));
  }
  static_cast<void>(share_of_own.release());
  return 0;
}

void PeerMesh::drain(int rank) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  while (!peer.closed) {
    const auto message = receive_message(peer.socket.get());
    if (!message) return;
    peer.closed = message->closed;
    if (peer.closed) return;
    const std::size_t bytes = message->parcel.bytes;
    const std::unique_ptr<std::shared_ptr<Segment>> shared(
        peer.same_process ? message->parcel.segment : nullptr);
    if (!shared && !message->fd)
      throw DeviceError(
          fmt::format("[cpu] memory of rank {}: no descriptor is free to take it; "
                      "raise the limit on open files (ulimit -n)",
                      rank));
    peer.arrived.push_back({bytes, shared ? *shared : Segment::map(message->fd.get(), bytes)});
  }
}

std::shared_ptr<Segment> PeerMesh::take(int rank, std::size_t bytes) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.arrived.empty()) return nullptr;
  const Handed handed = std::move(peer.arrived.front());
  peer.arrived.pop_front();
  if (handed.bytes != bytes)
    throw RemoteError(rank, fmt::format("[cpu] rank {} shares {} bytes, this rank {}", rank,
                                        handed.bytes, bytes));
  return handed.memory;
}

}  // namespace ddprun
