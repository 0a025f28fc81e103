// SPDX-License-Identifier: MIT
// One stream and its events; see comm_stream.h.
#include "comm/nccl/comm_stream.h"

#include <ddprun/error.h>

#include <utility>

#include <fmt/core.h>

namespace ddprun {

CommStream::CommStream(const CudaApi& cuda, std::shared_ptr<const GroupFailure> failure)
    : cuda_(cuda),
      failure_(std::move(failure)),
      events_(std::make_shared<EventPool>(cuda, failure_)) {
  int least = 0, greatest = 0;
  require_cuda(cuda_, cuda_.cudaDeviceGetStreamPriorityRange(&least, &greatest),
               "cudaDeviceGetStreamPriorityRange");
  require_cuda(cuda_,
               cuda_.cudaStreamCreateWithPriority(&stream_, kCudaStreamNonBlocking, greatest),
               "cudaStreamCreateWithPriority");
}

CommStream::~CommStream() {
  if (!failure_->known()) cuda_.cudaStreamDestroy(stream_);
}

void CommStream::order_after(Stream stream) {
  const PooledEvent ready = events_->take();
  require_cuda(cuda_, cuda_.cudaEventRecord(ready.get(), stream.handle), "cudaEventRecord");
  require_cuda(cuda_, cuda_.cudaStreamWaitEvent(stream_, ready.get(), 0), "cudaStreamWaitEvent");
}

// An event in a graph cannot be asked for, and so a captured operation has no deadline.
void CommStream::refuse_capture(const char* operation, Stream stream) const {
  int status = 0;
  require_cuda(cuda_, cuda_.cudaStreamIsCapturing(stream.handle, &status), "cudaStreamIsCapturing");
  if (status != 0)
    throw UsageError(
        fmt::format("[nccl] {}: its stream is being captured in a CUDA graph, which this version "
                    "cannot be part of; end the capture before the operation",
                    operation));
}

PooledEvent CommStream::record() {
  PooledEvent done = events_->take();
  require_cuda(cuda_, cuda_.cudaEventRecord(done.get(), stream_), "cudaEventRecord");
  return done;
}

}  // namespace ddprun
