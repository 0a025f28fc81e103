// SPDX-License-Identifier: MIT
// What the plugin offers, put together.
#include <ddprun/error.h>

#include <string_view>

#include "comm/cuda_plugin.h"
#include "comm/nccl/nccl_api.h"
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
  std::unique_ptr<Backend> make_nccl_backend(Store*, Backend&, const NcclBackendOptions&) override {
    throw DeviceError("[nccl] set-up: the plugin is not finished");
  }
  std::shared_ptr<std::byte[]> allocate(std::size_t, int) override { return nullptr; }
  void fill_zero(TensorView, Stream) override {}
};

}  // namespace
}  // namespace ddprun

extern "C" ddprun::CudaPlugin* ddprun_cuda_plugin(const char* version) {
  static ddprun::Plugin plugin;
  return std::string_view(version) == DDPRUN_VERSION ? &plugin : nullptr;
}
