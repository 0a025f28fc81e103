// SPDX-License-Identifier: MIT
// What the plugin offers, put together.
#include <string_view>

#include "comm/cuda_plugin.h"
#include "comm/nccl/nccl_api.h"
#include "comm/nccl/nccl_backend.h"
#include "cuda/cuda_api.h"
#include "cuda/kernels.h"
#include "cuda/memory.h"
#include "cuda/visible_devices.h"

namespace ddprun {
namespace {

class Plugin final : public CudaPlugin {
 public:
  std::string why_unavailable(int device, int size) override {
    auto why_not = why_device_unavailable(device);
    return why_not.empty() && size > 1 ? why_no_nccl() : why_not;
  }
  int device_count() override { return visible_device_count(); }
  std::unique_ptr<Backend> make_nccl_backend(std::shared_ptr<Store> store, Backend& host,
                                             const NcclBackendOptions& options) override {
    return ddprun::make_nccl_backend(std::move(store), host, options);
  }
  std::shared_ptr<std::byte[]> allocate(std::size_t bytes, int device,
                                        const void* contents) override {
    return allocate_on_device(bytes, device, contents);
  }
  void fill_zero(TensorView target, Stream stream) override {
    const CudaApi& api = cuda_api();
    require_cuda(api, api.cudaMemsetAsync(target.data, 0, target.bytes(), stream.handle),
                 "fill_zero");
  }
  void read(void* to, const void* from, std::size_t bytes, Stream stream,
            Deadline deadline) override {
    read_from_device(to, from, bytes, stream.handle, deadline);
  }
  void launch(DeviceKernel kernel, const void* arguments, std::size_t blocks,
              Stream stream) override {
    launch_kernel(kernel, arguments, blocks, stream.handle);
  }
};

}  // namespace
}  // namespace ddprun

extern "C" ddprun::CudaPlugin* ddprun_cuda_plugin(const char* version) {
  static ddprun::Plugin plugin;
  return std::string_view(version) == DDPRUN_VERSION ? &plugin : nullptr;
}
