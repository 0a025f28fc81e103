// SPDX-License-Identifier: MIT
// The handle of one collective operation.
#pragma once

#include <ddprun/deadline.h>
#include <ddprun/export.h>
#include <ddprun/stream.h>

#include <memory>

namespace ddprun {

class WorkState;

/// Copies share the state; dropping the last copy neither cancels nor waits.
class DDPRUN_API Work {
 public:
  /// A finished operation without an error.
  Work();
  explicit Work(std::shared_ptr<WorkState> state);

  /// True when finished, also when it failed.
  bool done() const;
  /// Blocks: the host, until the operation has finished, on a GPU until its result is in memory.
  /// Throws: the operation's own error (RemoteError, TimeoutError, ...), on every call;
  /// TimeoutError
  ///         when `deadline` passes first, in which case the operation goes on.
  void wait(Deadline deadline = Deadline::never()) const;
  /// Orders `stream` after the operation: what is launched on it afterwards sees the result.
  /// Blocks: like wait() on the CPU; not at all on a GPU, where a failure that is not known yet is
  ///         thrown by a later call.
  void wait_on(Stream stream) const;

 private:
  std::shared_ptr<WorkState> state_;
};

}  // namespace ddprun
