// SPDX-License-Identifier: MIT
// Waits by asking for the event: CUDA has no wait with a bound; see nccl_work.h.
#include "comm/nccl/nccl_work.h"

#include <ddprun/error.h>

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/core.h>

#include "comm/nccl/comm_stream.h"
#include "cuda/selected_device.h"

namespace ddprun {
namespace {

constexpr std::chrono::microseconds kSpin(50);
constexpr std::chrono::microseconds kFirstSleep(50), kLongestSleep(1000);
// The watchdog fails an operation at its deadline, after asking the others where they are. This is
// for the case that it cannot.
constexpr std::chrono::seconds kWatchdogLate(10);

}  // namespace

NcclWorkState::NcclWorkState(const CudaApi& cuda, int device, Position position,
                             const Operation& operation, std::shared_ptr<GroupFailure> failure)
    : cuda_(cuda),
      device_(device),
      position_(std::move(position)),
      deadline_(operation.deadline),
      start_(operation.start),
      failure_(std::move(failure)) {}

void NcclWorkState::enqueued(PooledEvent done) {
  done_ = std::move(done);
  enqueued_.store(true, std::memory_order_release);
}

bool NcclWorkState::complete() const {
  if (complete_.load(std::memory_order_acquire)) return true;
  if (!enqueued_.load(std::memory_order_acquire)) return false;
  const SelectedDevice selected(cuda_, device_);
  const CudaError error = cuda_.cudaEventQuery(done_.get());
  if (error == kCudaErrorNotReady) return false;
  require_cuda(cuda_, error, "cudaEventQuery");
  if (failure_->known()) return false;  // asked after the event: it may have been cut short
  complete_.store(true, std::memory_order_release);
  return true;
}

std::chrono::milliseconds NcclWorkState::patience() const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(deadline_.at() - start_);
}

bool NcclWorkState::done() const {
  try {
    return complete_or_failed();
  } catch (const DeviceError&) {
    return true;  // wait() tells
  }
}

bool NcclWorkState::complete_or_failed() const { return complete() || failure_->known(); }

void NcclWorkState::wait(Deadline deadline) {
  const auto spin_until = Deadline::Clock::now() + kSpin;
  const Deadline last =
      deadline_.is_never() ? deadline_ : Deadline::after(deadline_.remaining() + kWatchdogLate);
  auto sleep = kFirstSleep;
  while (!complete_or_failed()) {
    if (deadline.expired() || last.expired())
      throw TimeoutError(
          fmt::format("[nccl] {} #{}: it has not finished by the deadline of this wait",
                      position_.operation, position_.sequence));
    if (Deadline::Clock::now() < spin_until) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(sleep);
      sleep = std::min(2 * sleep, kLongestSleep);
    }
  }
  if (!complete_.load(std::memory_order_acquire)) failure_->raise();
}

void NcclWorkState::wait_on(Stream stream) {
  // The event is not asked for: in a thread that captures a graph that would spoil the capture.
  if (!complete_.load(std::memory_order_acquire) && failure_->known()) failure_->raise();
  const SelectedDevice selected(cuda_, device_);  // it has the default stream that is meant
  refuse_capture(cuda_, "wait_on", stream);
  require_cuda(cuda_, cuda_.cudaStreamWaitEvent(stream.handle, done_.get(), 0),
               "cudaStreamWaitEvent");
}

}  // namespace ddprun
