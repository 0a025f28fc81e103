// SPDX-License-Identifier: MIT
// Runs operations one at a time, in order: a blocking one on the caller's thread when nothing is
// queued before it (a hand-over costs thirty times a small all_reduce), the others on a thread of
// its own. After the first error every later operation fails with the same one.
#pragma once

#include <ddprun/backend.h>
#include <ddprun/work.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "comm/work.h"

namespace ddprun {

/// Threads: run() by one at a time.
class WorkQueue {
 public:
  /// Where an operation runs.
  enum class Where { caller, queue_thread };
  using Task = std::function<void(Where)>;

  /// The thread runs `first` before everything else and `last` at its end.
  WorkQueue(std::function<void()> first, std::function<void()> last);
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;
  ~WorkQueue() { close(); }

  /// Waits for what is queued (make it fail first if it is not to be waited for) and the thread.
  void close();

  /// Calls task(where), now or later. The Work of a task that ran and threw holds the error.
  template <class F>
  Work run(const Operation& operation, F task) {
    if (operation.async_op || !idle()) return push(operation, std::move(task));
    try {
      run_now(operation, task, Where::caller);
      return Work();
    } catch (...) {
      return finished(std::current_exception());
    }
  }

  bool idle() const { return pending_.load(std::memory_order_acquire) == 0; }

 private:
  struct Item {
    Operation operation;
    Task task;
    std::shared_ptr<HostWorkState> state;
  };

  template <class F>
  void run_now(const Operation& operation, F& task, Where where) {
    if (first_error_) std::rethrow_exception(first_error_);
    const auto start = where == Where::caller ? operation.start : Deadline::Clock::now();
    try {
      task(where);
    } catch (...) {
      first_error_ = std::current_exception();
      throw;
    }
    if (operation.nanoseconds != nullptr)
      operation.nanoseconds->fetch_add((Deadline::Clock::now() - start).count(),
                                       std::memory_order_relaxed);
  }

  static Work finished(std::exception_ptr error);
  Work push(const Operation& operation, Task task);
  void loop(const std::function<void()>& first, const std::function<void()>& last);

  std::exception_ptr first_error_;       // of whoever runs an operation
  std::atomic<std::size_t> pending_{0};  // queued or running on the thread
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;  // guarded by mutex_
  bool stopping_ = false;   // guarded by mutex_
  std::thread thread_;
};

}  // namespace ddprun
