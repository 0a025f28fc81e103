// SPDX-License-Identifier: MIT
// CUDA events of one device, used again and again: making one costs, and destroying one can hang
// when the device does. https://github.com/pytorch/pytorch/pull/122732
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "comm/nccl/group_failure.h"
#include "cuda/cuda_api.h"

namespace ddprun {

class EventPool;

/// One event; goes back to its pool. Give it up only when nobody asks for what was recorded last:
/// a wait that is on a stream already keeps what it was issued for.
class PooledEvent {
 public:
  PooledEvent() = default;
  PooledEvent(std::shared_ptr<EventPool> pool, CudaEvent event);
  PooledEvent(PooledEvent&& other) noexcept;
  PooledEvent& operator=(PooledEvent&& other) noexcept;
  ~PooledEvent();

  CudaEvent get() const { return event_; }

 private:
  std::shared_ptr<EventPool> pool_;
  CudaEvent event_ = nullptr;
};

/// Threads: any. Its events carry no times.
class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  EventPool(const CudaApi& cuda, int device, std::shared_ptr<const GroupFailure> failure)
      : cuda_(cuda), device_(device), failure_(std::move(failure)) {}
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  /// On any thread. Leaves the events to the driver when the group has failed.
  ~EventPool();

  /// The calling thread's device must be the pool's. Throws: DeviceError.
  PooledEvent take();

 private:
  friend PooledEvent;
  void give_back(CudaEvent event) noexcept;

  const CudaApi& cuda_;
  int device_;
  std::shared_ptr<const GroupFailure> failure_;
  std::mutex mutex_;
  std::vector<CudaEvent> free_;  // guarded by mutex_
};

}  // namespace ddprun
