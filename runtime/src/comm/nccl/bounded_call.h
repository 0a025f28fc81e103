// SPDX-License-Identifier: MIT
// Runs a call that may never return on a thread of its own, so that nobody else hangs with it.
#pragma once

#include <ddprun/deadline.h>

#include <functional>
#include <memory>
#include <thread>

namespace ddprun {

class BoundedCall {
 public:
  /// Starts it. `call` does not throw, and owns what it uses: it may outlive everybody.
  /// Throws: Error when no thread can be had.
  BoundedCall(const char* thread_name, std::function<void()> call);
  BoundedCall(const BoundedCall&) = delete;
  BoundedCall& operator=(const BoundedCall&) = delete;
  /// A call that has not returned is left behind with its thread.
  ~BoundedCall();

  /// Blocks: until the call has returned, at most until `deadline`. Returns whether it has; what it
  /// wrote may be read then.
  bool finished_by(Deadline deadline);

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace ddprun
