// SPDX-License-Identifier: MIT
// What the plugin offers, put together.
#include <ddprun/error.h>

#include <string_view>

#include "comm/cuda_plugin.h"

namespace ddprun {
namespace {

class Plugin final : public CudaPlugin {
 public:
  std::string why_unavailable(int) override { return "the plugin is not finished"; }
  int device_count() override { return 0; }
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
