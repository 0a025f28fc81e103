// SPDX-License-Identifier: MIT
// A small process that outlives the launcher and ends what the launcher leaves behind, also when
// the launcher is killed with SIGKILL. A worker's parent-death signal covers the worker alone; this
// covers its descendants.
#pragma once

#include <string>

#include <sys/types.h>

#include "base/unique_fd.h"

namespace ddprun {

/// What it ends when the launcher is gone, repeating until nothing is found or 2 s have passed:
///  - every process of a session that was started and has not ended;
///  - every process whose environment at its start named the job in DDPRUN_JOB, which all
///    descendants of an executed worker inherit, also those that began a session of their own.
/// Reapers of jobs inside this one are waited for, not killed: they end what only they know.
/// Not covered: a descendant that does both, leaving the session and clearing its environment, and
/// one that a forked function left in a session of its own without executing a program.
class Reaper {
 public:
  /// Forks the process. Comes before threads, and before anything is opened that it must not hold.
  /// Throws: StartError.
  explicit Reaper(const std::string& job_token);
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;
  ~Reaper() { finish(); }

  /// Lets it do its work and waits for its end, so that nothing is left when this returns.
  /// Blocks: at most 3 s; a reaper that takes longer is killed.
  void finish();
  /// Through which the reaper learns of the launcher's end: no worker may hold it.
  int descriptor() const { return pipe_.get(); }

  void started(pid_t session) { send(session); }
  void ended(pid_t session) { send(-session); }

 private:
  void send(pid_t message);

  UniqueFd pipe_;
  pid_t pid_ = -1;
  UniqueFd pidfd_;
};

}  // namespace ddprun
