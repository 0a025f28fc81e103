// SPDX-License-Identifier: MIT
// One stream and its events; see comm_stream.h.
#include "comm/nccl/comm_stream.h"

#include <ddprun/error.h>

#include <utility>

#include <fmt/core.h>

#include "cuda/selected_device.h"

namespace ddprun {

// An event in a graph cannot be asked for, and so a captured operation has no deadline.
void refuse_capture(const CudaApi& cuda, const char* operation, Stream stream) {
  int status = 0;
  require_cuda(cuda, cuda.cudaStreamIsCapturing(stream.handle, &status), "cudaStreamIsCapturing");
  if (status != 0)
    throw UsageError(
        fmt::format("[nccl] {}: its stream is being captured in a CUDA graph, which this version "
                    "cannot be part of; end the capture before the operation",
                    operation));
}

CommStream::CommStream(const CudaApi& cuda, int device, std::shared_ptr<const GroupFailure> failure)
    : cuda_(cuda),
      device_(device),
      failure_(std::move(failure)),
      events_(std::make_shared<EventPool>(cuda, device, failure_)) {
  int least = 0, greatest = 0;
  require_cuda(cuda_, cuda_.cudaDeviceGetStreamPriorityRange(&least, &greatest),
               "cudaDeviceGetStreamPriorityRange");
  require_cuda(cuda_,
               cuda_.cudaStreamCreateWithPriority(&stream_, kCudaStreamNonBlocking, greatest),
               "cudaStreamCreateWithPriority");
}

CommStream::~CommStream() {
  if (failure_->known()) return;
  try {
    const SelectedDevice selected(cuda_, device_);
    cuda_.cudaStreamDestroy(stream_);
  } catch (const DeviceError&) {  // left to the driver too
  }
}

void CommStream::order_after(const char* operation, Stream stream) {
  refuse_capture(cuda_, operation, stream);
  const PooledEvent ready = events_->take();
  const CudaError error = cuda_.cudaEventRecord(ready.get(), stream.handle);
  if (error == kCudaErrorInvalidResourceHandle) {
    cuda_.cudaGetLastError();
    throw UsageError(
        fmt::format("[nccl] {}: the stream is not of cuda:{}; create it after init_process_group "
                    "has selected the device",
                    operation, device_));
  }
  require_cuda(cuda_, error, "cudaEventRecord");
  require_cuda(cuda_, cuda_.cudaStreamWaitEvent(stream_, ready.get(), 0), "cudaStreamWaitEvent");
}

PooledEvent CommStream::record() {
  PooledEvent done = events_->take();
  require_cuda(cuda_, cuda_.cudaEventRecord(done.get(), stream_), "cudaEventRecord");
  return done;
}

}  // namespace ddprun
