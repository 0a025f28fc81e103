// SPDX-License-Identifier: MIT
// A unix socket to every other rank of the machine, over which ranks hand each other memory. The
// sockets have abstract names: they leave no file, and reach only the own network namespace.
#pragma once

#include <ddprun/deadline.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

#include "base/unique_fd.h"
#include "comm/cpu/segment.h"

namespace ddprun {

/// 32 random hexadecimal digits.
std::string random_token();

/// Listens on the abstract name that belongs to `token`.
/// Throws: ConnectionError.
UniqueFd listen_for_peers(const std::string& token);

/// Threads: one at a time.
class PeerMesh {
 public:
  /// Connects to the lower ranks and accepts the higher ones. `tokens` by rank, got through the
  /// store: who connects without the right one, or as another user, is dropped.
  /// Throws: TimeoutError naming the ranks that are missing; ConnectionError.
  PeerMesh(int rank, std::vector<std::string> tokens, UniqueFd listener, Deadline deadline);
  PeerMesh(const PeerMesh&) = delete;
  PeerMesh& operator=(const PeerMesh&) = delete;
  ~PeerMesh();

  /// By rank; 0 for ranks that are threads of this process or cannot be seen from it.
  std::vector<pid_t> pids() const;

  /// Gives `own` (with its descriptor) to all ranks and returns everybody's, by rank. Collective.
  /// `look` is called while waiting, at least every 50 ms, and before a rank is blamed for having
  /// closed its socket; it may throw.
  /// Throws: RemoteError naming a rank that closed its socket; TimeoutError; DeviceError.
  std::vector<std::shared_ptr<Segment>> share(const std::shared_ptr<Segment>& own, int fd,
                                              std::size_t bytes, const std::function<void()>& look,
                                              Deadline deadline);

 private:
  struct Handed {
    std::size_t bytes;
    std::shared_ptr<Segment> memory;
  };
  struct Peer {
    UniqueFd socket;
    pid_t pid = 0;
    bool same_process = false;
    std::deque<Handed> arrived = {};
    bool closed = false;  // and all that it had sent has arrived
  };

  UniqueFd connect_to(int rank, Deadline deadline) const;
  void accept_higher_ranks(int listener, Deadline deadline);
  void adopt(int rank, UniqueFd socket);
  /// 0, or the errno when the peer has closed its socket or it may work later: too many descriptors
  /// on their way, or a full buffer.
  int try_send(int rank, const std::shared_ptr<Segment>& own, int fd, std::size_t bytes) const;
  /// Receives what has come.
  void drain(int rank);
  /// The first of what has come; null when nothing has.
  std::shared_ptr<Segment> take(int rank, std::size_t bytes);
  [[noreturn]] void throw_left(int rank, const std::function<void()>& look) const;
  [[noreturn]] void throw_late(const std::vector<std::shared_ptr<Segment>>& all, int refused) const;

  int rank_;
  std::vector<std::string> tokens_;
  std::vector<Peer> peers_;  // by rank; empty at rank_
};

}  // namespace ddprun
