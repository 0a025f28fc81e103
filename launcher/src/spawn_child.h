// SPDX-License-Identifier: MIT
// Starts one worker's process: fork and exec of our own.
#pragma once

#include <ddprun/error.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "base/unique_fd.h"
#include "descriptor_limit.h"
#include "signal_state.h"

namespace ddprun {

/// A process could not be started; the job's exit code goes with it (see the README's table).
class StartError : public Error {
 public:
  StartError(int exit_code, const std::string& what) : Error(what), exit_code_(exit_code) {}
  /// 75: this machine would not (processes, descriptors, memory).
  static StartError from_errno(const std::string& operation, int error);
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

/// What the process is to be. The streams: a descriptor, or -1 for the launcher's own.
struct ChildPlan {
  std::vector<std::string> argv;         // executed with PATH search; empty: `function` is called
  std::function<int()> function;         // its result is the exit code
  std::vector<std::string> environment;  // the whole of it, "NAME=value"
  int out = -1;
  int err = -1;
  std::vector<int> keep;   // for `function`: descriptors that stay open besides 0, 1 and 2
  std::vector<int> close;  // for `function`: those that do not, though `keep` may hold the number
};

struct Child {
  pid_t pid = -1;
  UniqueFd pidfd;
};

/// The child leads a session of its own, is killed when the calling thread ends, has the signals
/// and the limit as they were found, and holds no descriptor of the launcher but its streams. A
/// set-uid program loses the parent-death signal when it is executed; the reaper then ends it.
/// Blocks: until the program is executed or could not be.
/// Throws: StartError: 127 not found, 126 cannot be executed, 2 argument list too long, 75.
Child spawn_child(const ChildPlan& plan, const SignalState& found, const DescriptorLimit& limit);

/// Read end and write end, close-on-exec.
std::pair<UniqueFd, UniqueFd> open_pipe();

/// The descriptors that are open now.
/// Throws: StartError when they cannot be listed.
std::vector<int> open_descriptors();

}  // namespace ddprun
