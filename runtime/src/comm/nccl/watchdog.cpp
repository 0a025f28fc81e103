// SPDX-License-Identifier: MIT
// One round every 20 ms while something is under way; see watchdog.h.
#include "comm/nccl/watchdog.h"

#include <ddprun/error.h>

#include <utility>

#include <fmt/core.h>
#include <pthread.h>

#include "base/log.h"
#include "comm/nccl/nccl_error.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kRound(20);
// A pause between two steps is shorter than this: the store hears only of ranks that rest longer.
constexpr milliseconds kRest(200);
constexpr milliseconds kAbort(5000);

}  // namespace

Watchdog::Watchdog(NcclRank self, Notices& notices, NcclCommunicator& comm)
    : self_(std::move(self)),
      notices_(notices),
      comm_(comm),
      peers_(notices, self_.host, self_.rank),
      thread_([this] { loop(); }) {
  ::pthread_setname_np(thread_.native_handle(), "nccl-watchdog");
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::watch(std::shared_ptr<NcclWorkState> work) {
  bool was_idle = false;
  {
    const std::lock_guard lock(mutex_);
    was_idle = pending_.empty();
    last_ = work->position();
    pending_.push_back(std::move(work));
  }
  if (was_idle) changed_.notify_all();
}

void Watchdog::fail(const Failure& own) {
  Failure first = own;
  try {
    first = notices_.agree(own);
  } catch (const std::exception& error) {
    log(LogLevel::warning, "nccl", "the other ranks are not told of a failure: {}", error.what());
  }
  self_.failure->record(first);
  self_.host.abort(first.text);
  { const std::lock_guard lock(mutex_); }  // nobody is between looking and waiting
  changed_.notify_all();
}

void Watchdog::suspect(const Failure& own, milliseconds patience) {
  const std::lock_guard lock(mutex_);
  if (!suspicion_) suspicion_ = Suspicion{own, Deadline::after(patience)};
}

void Watchdog::wait_for_failure() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return self_.failure->known(); });
}

void Watchdog::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return pending_.empty() || self_.failure->known(); });
}

std::uint64_t Watchdog::last_begun() const {
  const std::lock_guard lock(mutex_);
  return last_.sequence;
}

void Watchdog::loop() {
  self_.cuda.cudaSetDevice(self_.device);
  // Asking for an event must not break a capture of the program's.
  int mode = kCudaCaptureModeThreadLocal;
  self_.cuda.cudaThreadExchangeStreamCaptureMode(&mode);
  std::unique_lock lock(mutex_);
  while (!stopping_ && !self_.failure->known()) {
    if (pending_.empty()) {
      rest(lock);
      continue;
    }
    lock.unlock();
    const auto oldest = oldest_pending();
    if (oldest != nullptr)
      if (const auto failure = look(*oldest)) fail(*failure);
    lock.lock();
    changed_.wait_for(lock, kRound, [this] { return stopping_ || self_.failure->known(); });
  }
  lock.unlock();
  if (self_.failure->known()) end_group();
}

void Watchdog::rest(std::unique_lock<std::mutex>& lock) {
  const auto awake = [this] { return stopping_ || !pending_.empty() || self_.failure->known(); };
  if (changed_.wait_for(lock, kRest, awake)) return;
  const Position last = last_;
  lock.unlock();
  try {
    peers_.rest(last);
  } catch (const std::exception& error) {
    log(LogLevel::warning, "nccl", "the other ranks are not told where this one is: {}",
        error.what());
  }
  lock.lock();
  changed_.wait(lock, awake);
}

/// Forgets what has finished.
std::shared_ptr<NcclWorkState> Watchdog::oldest_pending() {
  for (;;) {
    std::shared_ptr<NcclWorkState> oldest;
    {
      const std::lock_guard lock(mutex_);
      if (pending_.empty()) break;
      oldest = pending_.front();
    }
    try {
      if (!oldest->complete()) return oldest;
    } catch (const DeviceError& error) {
      fail({FailureKind::failed, self_.rank, error.what()});
      return nullptr;
    }
    const std::lock_guard lock(mutex_);
    pending_.pop_front();
  }
  changed_.notify_all();
  return nullptr;
}

std::optional<Failure> Watchdog::look(const NcclWorkState& oldest) {
  Position last;
  {
    const std::lock_guard lock(mutex_);
    last = last_;
  }
  try {
    if (auto failure = peers_.look(oldest, last)) return failure;
  } catch (const std::exception& error) {  // of the store, which may have taken its time
    if (oldest.deadline().expired() && !oldest.done())
      return Failure{FailureKind::silent, self_.rank,
                     fmt::format("[nccl] {} #{}: it has not finished within {} ms, and the other "
                                 "ranks cannot be asked: {}",
                                 oldest.position().operation, oldest.position().sequence,
                                 oldest.patience().count(), error.what())};
  }
  look_at_nccl();
  const std::lock_guard lock(mutex_);
  if (!suspicion_ || !suspicion_->until.expired()) return std::nullopt;
  return suspicion_->own;
}

void Watchdog::look_at_nccl() {
  const auto error = comm_.async_error();
  if (!error || *error == kNcclInProgress) return;
  suspect({FailureKind::failed, self_.rank,
           fmt::format("[nccl] rank {}: {}", self_.rank,
                       describe(*self_.nccl, "asynchronous error", *error))},
          time_for_culprit(*error));
}

void Watchdog::end_group() {
  comm_.abort(Deadline::after(kAbort));
  const std::lock_guard lock(mutex_);
  pending_.clear();
}

}  // namespace ddprun
