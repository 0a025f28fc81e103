// SPDX-License-Identifier: MIT
// A thread that is joined or left behind; see bounded_call.h.
#include "comm/nccl/bounded_call.h"

#include <ddprun/error.h>

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <utility>

#include <fmt/core.h>
#include <pthread.h>

namespace ddprun {

struct BoundedCall::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool finished = false;  // guarded by mutex
};

BoundedCall::BoundedCall(const char* thread_name, std::function<void()> call)
    : state_(std::make_shared<State>()) {
  try {
    thread_ = std::thread([state = state_, call = std::move(call)] {
      call();
      const std::lock_guard lock(state->mutex);
      state->finished = true;
      state->changed.notify_all();
    });
  } catch (const std::system_error& error) {
    throw Error(fmt::format("[nccl] no thread for {}: {}", thread_name, error.what()));
  }
  ::pthread_setname_np(thread_.native_handle(), thread_name);
}

BoundedCall::~BoundedCall() {
  if (finished_by(Deadline::after(std::chrono::milliseconds(0))))
    thread_.join();
  else
    thread_.detach();  // inside a library that does not return: there is no other way out
}

bool BoundedCall::finished_by(Deadline deadline) {
  std::unique_lock lock(state_->mutex);
  const auto finished = [this] { return state_->finished; };
  if (!deadline.is_never()) return state_->changed.wait_until(lock, deadline.at(), finished);
  state_->changed.wait(lock, finished);
  return true;
}

}  // namespace ddprun
