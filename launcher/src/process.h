// SPDX-License-Identifier: MIT
// One worker's process and everything in its session.
//
// What happens at its end, in this order:
//   1. the worker itself ends; it stays a zombie, so its number, which is also the number of its
//      session, cannot become another's; `exited` is called with its status
//   2. when nobody told it to stop, `left_behind` is called if something is left of its session,
//      which gets SIGTERM, and SIGKILL 2 s later;
//      when stop() was called, its signal went to the whole session, and what is left has the grace
//      of the caller, who calls kill() at its end. Only what ignores that signal gets SIGTERM now:
//      a shell starts its background children so, and nobody else would ask them to end
//   3. when the session is empty, the worker is reaped and `gone` is called
#pragma once

#include <ddprun/launch.h>

#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "loop.h"
#include "spawn_child.h"

namespace ddprun {

/// A process that outlives the worker in its session.
struct Leftover {
  pid_t pid = 0;
  std::string name;
};

/// Threads: the loop's.
class Process {
 public:
  struct Handlers {
    std::function<void(ExitStatus)> exited;
    std::function<void()> left_behind;
    std::function<void()> gone;
  };

  /// Watches the child from here on; handlers of several processes are called in the order in which
  /// the processes ended.
  Process(Loop& loop, Child child, Handlers handlers);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  /// Kills the session and reaps, if that has not happened.
  ~Process();

  pid_t pid() const { return child_.pid; }
  /// Of a worker that has ended: who of its session has not.
  std::vector<Leftover> leftovers() const;

  /// Asks the whole session to end (and wakes it, should it be stopped).
  void stop(int signal);
  /// Ends the whole session.
  void kill();
  /// Sends to the whole session; ends nothing.
  void signal_all(int signal);
  /// Sends to the worker alone: its helpers did not ask for USR1, and it would end them.
  void signal_worker(int signal);

 private:
  struct Member {
    pid_t pid;
    UniqueFd pidfd;
    Loop::Watch watch;
  };
  void on_exit();
  void check_session();
  void end_deaf_members();
  void reap();

  Loop& loop_;
  Child child_;
  Handlers handlers_;
  int stop_signal_ = 0;  // the first one; 0: nobody told it to stop
  bool killing_ = false;
  bool exited_ = false;
  bool reaped_ = false;
  std::vector<Member> members_;  // of the session, after the worker's end
  Loop::Watch watch_;            // the worker, then the 2 s
};

}  // namespace ddprun
