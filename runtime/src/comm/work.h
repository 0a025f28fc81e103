// SPDX-License-Identifier: MIT
// The shared state behind a Work: one writer finishes it, any thread waits for it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>

#include <ddprun/work.h>

#include "base/fork_mark.h"

namespace ddprun {

/// Threads: finish() once, by the thread that runs the operation; the others by any.
class WorkState {
 public:
  void finish(std::exception_ptr error = nullptr);
  bool done() const { return done_.load(std::memory_order_acquire); }
  void wait(Deadline deadline);

 private:
  std::atomic<bool> done_{false};
  std::mutex mutex_;
  std::condition_variable finished_;
  ForkMark home_;             // only there is a thread that finishes it
  std::exception_ptr error_;  // written before done_ becomes true, read after
};

}  // namespace ddprun
