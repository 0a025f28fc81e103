// SPDX-License-Identifier: MIT
// Device memory; see memory.h.
#include "cuda/memory.h"

#include <ddprun/error.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/log.h"
#include "cuda/selected_device.h"

namespace ddprun {
namespace {

constexpr std::chrono::minutes kSetUpLimit{1};

/// CUDA has no bounded wait: the stream is asked, less and less often.
void wait_for_stream(const CudaApi& api, CudaStream stream, Deadline deadline, const char* what) {
  constexpr std::chrono::microseconds kLongestPause{1000};
  for (std::chrono::microseconds pause{5};; pause = std::min(pause * 2, kLongestPause)) {
    const CudaError status = api.cudaStreamQuery(stream);
    if (status != kCudaErrorNotReady) return require_cuda(api, status, what);
    if (deadline.expired())
      throw TimeoutError(std::string("[cuda] ") + what +
                         ": the stream had not finished at the deadline; is a kernel or a "
                         "collective on it stuck?");
    std::this_thread::sleep_for(pause);
  }
}

/// A stream of its own, which waits for no other and is not waited for.
class OwnStream {
 public:
  explicit OwnStream(const CudaApi& api) : api_(api) {
    require_cuda(api_, api_.cudaStreamCreateWithPriority(&stream_, kCudaStreamNonBlocking, 0),
                 "cudaStreamCreateWithPriority");
  }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream() { api_.cudaStreamDestroy(stream_); }
  CudaStream get() const { return stream_; }

 private:
  const CudaApi& api_;
  CudaStream stream_ = nullptr;
};

/// On whatever thread has the last owner, which may have no device yet.
void release(const CudaApi& api, int device, void* address) {
  try {
    const SelectedDevice selected(api, device);
    require_cuda(api, api.cudaFree(address), "cudaFree");
  } catch (const DeviceError& error) {
    log(LogLevel::info, "cuda", "memory of cuda:{} is not freed: {}", device, error.what());
  }
}

}  // namespace

std::shared_ptr<std::byte[]> allocate_on_device(std::size_t bytes, int device,
                                                const void* contents) {
  const CudaApi& api = cuda_api();
  const SelectedDevice selected(api, device);
  void* address = nullptr;
  require_cuda(api, api.cudaMalloc(&address, bytes), "cudaMalloc");
  std::shared_ptr<std::byte[]> memory(static_cast<std::byte*>(address),
                                      [&api, device](std::byte* p) { release(api, device, p); });
  if (bytes == 0) return memory;
  const OwnStream stream(api);
  const CudaError error =
      contents == nullptr
          ? api.cudaMemsetAsync(address, 0, bytes, stream.get())
          : api.cudaMemcpyAsync(address, contents, bytes, kCudaMemcpyDefault, stream.get());
  require_cuda(api, error, "allocate");
  wait_for_stream(api, stream.get(), Deadline::after(kSetUpLimit), "allocate");
  return memory;
}

void read_from_device(void* to, const void* from, std::size_t bytes, CudaStream stream,
                      Deadline deadline) {
  const CudaApi& api = cuda_api();
  // First, since a copy to pageable memory itself waits for the stream, without a bound.
  wait_for_stream(api, stream, deadline, "read");
  auto landing = std::make_unique<std::byte[]>(bytes);
  require_cuda(api, api.cudaMemcpyAsync(landing.get(), from, bytes, kCudaMemcpyDefault, stream),
               "read");
  try {
    wait_for_stream(api, stream, deadline, "read");
  } catch (...) {
    landing.release();  // the device may still write to it
    throw;
  }
  std::memcpy(to, landing.get(), bytes);
}

}  // namespace ddprun
