// SPDX-License-Identifier: MIT
// The communication thread; see work_queue.h.
#include "comm/work_queue.h"

#include <csignal>
#include <utility>

#include <pthread.h>

namespace ddprun {

WorkQueue::WorkQueue(std::function<void()> first, std::function<void()> last) {
  sigset_t all, old;  // signals are for the program's threads
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &old);
  thread_ =
      std::thread([this, first = std::move(first), last = std::move(last)] { loop(first, last); });
  ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
  ::pthread_setname_np(thread_.native_handle(), "ddprun-comm");
  run({.async_op = true}, [](Where) {}).wait();  // until `first` has run
}

void WorkQueue::close() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

Work WorkQueue::finished(std::exception_ptr error) {
  auto state = std::make_shared<HostWorkState>();
  state->finish(std::move(error));
  return Work(std::move(state));
}

Work WorkQueue::push(const Operation& operation, Task task) {
  auto state = std::make_shared<HostWorkState>();
  pending_.fetch_add(1, std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);
    items_.push_back({operation, std::move(task), state});
  }
  changed_.notify_one();
  return Work(std::move(state));
}

void WorkQueue::loop(const std::function<void()>& first, const std::function<void()>& last) {
  first();
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopping_ || !items_.empty(); });
    if (items_.empty()) break;
    const Item item = std::move(items_.front());
    items_.pop_front();
    lock.unlock();
    std::exception_ptr error;
    try {
      run_now(item.operation, item.task, Where::queue_thread);
    } catch (...) {
      error = std::current_exception();
    }
    pending_.fetch_sub(1, std::memory_order_release);  // before finish: a waiter may call again
    item.state->finish(std::move(error));
  }
  last();
}

}  // namespace ddprun
