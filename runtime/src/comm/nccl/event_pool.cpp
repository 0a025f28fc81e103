// SPDX-License-Identifier: MIT
// Lends events; see event_pool.h.
#include "comm/nccl/event_pool.h"

#include <ddprun/error.h>

#include <utility>

#include "cuda/selected_device.h"

namespace ddprun {

PooledEvent::PooledEvent(std::shared_ptr<EventPool> pool, CudaEvent event)
    : pool_(std::move(pool)), event_(event) {}

PooledEvent::PooledEvent(PooledEvent&& other) noexcept
    : pool_(std::move(other.pool_)), event_(std::exchange(other.event_, nullptr)) {}

PooledEvent& PooledEvent::operator=(PooledEvent&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(event_, other.event_);
  return *this;
}

PooledEvent::~PooledEvent() {
  if (event_ != nullptr) pool_->give_back(event_);
}

EventPool::~EventPool() {
  if (failure_->known() || free_.empty()) return;
  try {
    const SelectedDevice selected(cuda_, device_);
    for (CudaEvent event : free_) cuda_.cudaEventDestroy(event);
  } catch (const DeviceError&) {  // left to the driver too
  }
}

PooledEvent EventPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      CudaEvent event = free_.back();
      free_.pop_back();
      return {shared_from_this(), event};
    }
    free_.reserve(free_.capacity() + 1);  // so that giving back cannot fail
  }
  CudaEvent event = nullptr;
  require_cuda(cuda_, cuda_.cudaEventCreateWithFlags(&event, kCudaEventDisableTiming),
               "cudaEventCreateWithFlags");
  return {shared_from_this(), event};
}

void EventPool::give_back(CudaEvent event) noexcept {
  const std::lock_guard lock(mutex_);
  free_.push_back(event);
}

}  // namespace ddprun
