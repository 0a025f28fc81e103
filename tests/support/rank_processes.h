// SPDX-License-Identifier: MIT
// Ranks as processes: forks n ranks that meet in a store of the test, hears what they say, and can
// kill, stop and continue them. Truth about deaths; logic is tested with threads (run_ranks.h).
#pragma once

#include <ddprun/deadline.h>
#include <ddprun/process_group.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

#include "base/unique_fd.h"
#include "store/tcp_store_server.h"

namespace ddprun::test {

/// What a rank's process says: lines to the test.
class Voice {
 public:
  explicit Voice(int fd) : fd_(fd) {}
  void say(const std::string& line) const;

 private:
  int fd_;
};

/// "RemoteError 3 <microseconds>: text": how a rank failed and when, on the clock of all processes.
struct Failure {
  std::string type;
  int rank = -1;
  std::int64_t at_us = 0;
  std::string text;

  static Failure parse(const std::string& line);
  std::string line() const;
};

std::int64_t now_us();

/// How fn failed; type "none" when it did not.
Failure failure_of(const std::function<void()>& fn);

class RankProcesses {
 public:
  using Fn = std::function<void(ProcessGroup&, const Voice&)>;

  /// Every rank joins a group of n and runs fn; what fn throws is its last line.
  /// `prepare` runs in every rank before it joins. With backend nccl a rank has the GPU of its
  /// number.
  RankProcesses(
      int n, std::chrono::milliseconds timeout, const Fn& fn,
      const std::function<void(int rank)>& prepare = [](int) {},
      const std::string& backend = "auto");
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;
  /// Kills who is left.
  ~RankProcesses();

  void signal(int rank, int number) const;
  /// The next line of a rank; empty at its end. Throws TimeoutError.
  std::string hear(int rank, Deadline deadline);
  /// Whether hear() would return at once.
  bool said_something(int rank) const;
  /// True when no rank says anything for `quiet`.
  bool silent_for(std::chrono::milliseconds quiet);
  /// Waits for the end of a rank: its wait status.
  int wait(int rank);

 private:
  struct Child {
    pid_t pid = -1;
    UniqueFd pipe;
    std::string heard;
  };

  std::vector<Child> children_;
  std::unique_ptr<TcpStoreServer> server_;
};

}  // namespace ddprun::test
