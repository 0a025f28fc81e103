// SPDX-License-Identifier: MIT
// The state of one operation on GPU memory. It has finished when its event was seen complete before
// the group was known to have failed: what completes later may have been cut short.
#pragma once

#include <ddprun/backend.h>

#include <atomic>
#include <chrono>
#include <memory>

#include "comm/nccl/event_pool.h"
#include "comm/nccl/group_failure.h"
#include "comm/nccl/notices.h"
#include "comm/work.h"
#include "cuda/cuda_api.h"

namespace ddprun {

/// Threads: any, whatever their device is; enqueued() once.
class NcclWorkState final : public WorkState {
 public:
  NcclWorkState(const CudaApi& cuda, int device, Position position, const Operation& operation,
                std::shared_ptr<GroupFailure> failure);

  /// All of it is on the stream, and `done` recorded after it.
  void enqueued(PooledEvent done);

  /// Whether the result is in memory. Throws: DeviceError when CUDA refuses to tell.
  bool complete() const;
  const Position& position() const { return position_; }
  Deadline deadline() const { return deadline_; }
  /// From its call to its deadline.
  std::chrono::milliseconds patience() const;

  bool done() const override;
  void wait(Deadline deadline) override;
  void wait_on(Stream stream) override;

 private:
  bool complete_or_failed() const;

  const CudaApi& cuda_;
  int device_;
  Position position_;
  Deadline deadline_;
  Deadline::Clock::time_point start_;
  std::shared_ptr<GroupFailure> failure_;
  PooledEvent done_;  // written before enqueued_ becomes true, read after
  std::atomic<bool> enqueued_{false};
  mutable std::atomic<bool> complete_{false};
};

}  // namespace ddprun
