// SPDX-License-Identifier: MIT
// The stream on which a rank's collectives run, and its order with the streams of the program. An
// event recorded on one stream and waited for by another is all the order there is.
#pragma once

#include <ddprun/stream.h>

#include <memory>

#include "comm/nccl/event_pool.h"
#include "comm/nccl/group_failure.h"
#include "cuda/cuda_api.h"

namespace ddprun {

/// Throws: UsageError naming `operation` for a stream that is being captured.
void refuse_capture(const CudaApi& cuda, const char* operation, Stream stream);

/// Threads: any, each with the stream's device selected. Throws: DeviceError.
class CommStream {
 public:
  /// Of `device`, which is the calling thread's, with the highest priority; it never waits for the
  /// default stream by itself.
  CommStream(const CudaApi& cuda, int device, std::shared_ptr<const GroupFailure> failure);
  CommStream(const CommStream&) = delete;
  CommStream& operator=(const CommStream&) = delete;
  /// Leaves the stream to the driver when the group has failed: work may be stuck on it.
  ~CommStream();

  CudaStream get() const { return stream_; }
  /// Whether all that has been put on the stream has finished.
  bool idle() const { return cuda_.cudaStreamQuery(stream_) == kCudaSuccess; }
  /// What comes next waits for what is on `stream` now. Throws also: UsageError naming `operation`
  /// for a stream that is being captured or of another device, before anything is enqueued.
  void order_after(const char* operation, Stream stream);
  /// An event that completes when what has been put on the stream so far has finished.
  PooledEvent record();

 private:
  const CudaApi& cuda_;
  int device_;
  std::shared_ptr<const GroupFailure> failure_;
  std::shared_ptr<EventPool> events_;
  CudaStream stream_ = nullptr;
};

}  // namespace ddprun
