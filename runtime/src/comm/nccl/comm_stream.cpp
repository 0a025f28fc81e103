// SPDX-License-Identifier: MIT
// One stream and its events; see comm_stream.h.
#include "comm/nccl/comm_stream.h"

#include <utility>

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

PooledEvent CommStream::record() {
  PooledEvent done = events_->take();
  require_cuda(cuda_, cuda_.cudaEventRecord(done.get(), stream_), "cudaEventRecord");
  return done;
}

}  // namespace ddprun
