// SPDX-License-Identifier: MIT
// cudaMalloc, and a cudaFree that cannot hang; see device_memory.h.
#include "comm/nccl/device_memory.h"

#include <ddprun/error.h>

#include <algorithm>
#include <exception>

#include <fmt/core.h>

#include "base/log.h"
#include "cuda/selected_device.h"

namespace ddprun {

std::shared_ptr<std::byte[]> allocate_device_memory(const CudaApi& cuda, int device,
                                                    std::size_t bytes,
                                                    const std::shared_ptr<const CommStream>& stream,
                                                    std::shared_ptr<const GroupFailure> failure) {
  void* memory = nullptr;
  const auto what = fmt::format("cudaMalloc of {} bytes on cuda:{}", bytes, device);
  require_cuda(cuda, cuda.cudaMalloc(&memory, std::max<std::size_t>(bytes, 1)), what.c_str());
  const auto release = [&cuda, device, bytes, stream = std::weak_ptr(stream),
                        failure = std::move(failure)](std::byte* pointer) {
    if (failure->known()) {
      log(LogLevel::info, "nccl", "{} bytes of cuda:{} are not freed: the group has failed", bytes,
          device);
      return;
    }
    try {
      const SelectedDevice selected(cuda, device);
      const auto comm_stream = std::uncaught_exceptions() > 0 ? stream.lock() : nullptr;
      if (comm_stream != nullptr && !comm_stream->idle()) {
        log(LogLevel::info, "nccl",
            "{} bytes of cuda:{} are not freed: an exception ends their scope while operations are "
            "under way",
            bytes, device);
        return;
      }
      require_cuda(cuda, cuda.cudaFree(pointer), "cudaFree");
    } catch (const DeviceError& error) {
      log(LogLevel::info, "nccl", "{} bytes of cuda:{} are not freed: {}", bytes, device,
          error.what());
    }
  };
  return {static_cast<std::byte*>(memory), release};
}

}  // namespace ddprun
