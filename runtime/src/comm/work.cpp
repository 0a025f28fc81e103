// SPDX-License-Identifier: MIT
// Work and the state behind it; see work.h.
#include "comm/work.h"

#include <ddprun/error.h>

namespace ddprun {

void HostWorkState::finish(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    done_.store(true, std::memory_order_release);
  }
  finished_.notify_all();
}

void HostWorkState::wait(Deadline deadline) {
  if (!done()) {
    if (home_.in_child())
      throw UsageError(
          "[work] wait: this process was forked from the rank that started the operation; wait for "
          "it there");
    std::unique_lock lock(mutex_);
    const auto is_done = [this] { return done(); };
    if (deadline.is_never()) {
      finished_.wait(lock, is_done);
    } else if (!finished_.wait_until(lock, deadline.at(), is_done)) {
      throw TimeoutError(
          "[work] wait: the operation has not finished by the deadline of this wait");
    }
  }
  if (error_) std::rethrow_exception(error_);
}

Work::Work() = default;
Work::Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}

bool Work::done() const { return !state_ || state_->done(); }

void Work::wait(Deadline deadline) const {
  if (state_) state_->wait(deadline);
}

void Work::wait_on(Stream stream) const {
  if (state_) state_->wait_on(stream);
}

}  // namespace ddprun
