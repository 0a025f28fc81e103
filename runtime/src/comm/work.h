// SPDX-License-Identifier: MIT
// The shared state behind a Work. One for operations that a thread runs is here; a backend that
// works on a device brings its own.
#pragma once

#include <ddprun/export.h>
#include <ddprun/work.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>

#include "base/fork_mark.h"

namespace ddprun {

/// What Work's members of the same names promise. Threads: any.
class DDPRUN_API WorkState {
 public:
  WorkState() = default;
  WorkState(const WorkState&) = delete;
  WorkState& operator=(const WorkState&) = delete;
  virtual ~WorkState() = default;

  virtual bool done() const = 0;
  virtual void wait(Deadline deadline) = 0;
  virtual void wait_on(Stream stream) = 0;
};

/// Of an operation on CPU memory. Threads: finish() once, by the thread that runs the operation.
class HostWorkState final : public WorkState {
 public:
  void finish(std::exception_ptr error = nullptr);
  bool done() const override { return done_.load(std::memory_order_acquire); }
  void wait(Deadline deadline) override;
  void wait_on(Stream) override { wait(Deadline::never()); }

 private:
  std::atomic<bool> done_{false};
  std::mutex mutex_;
  std::condition_variable finished_;
  ForkMark home_;             // only there is a thread that finishes it
  std::exception_ptr error_;  // written before done_ becomes true, read after
};

}  // namespace ddprun
