// SPDX-License-Identifier: MIT
// Finds the plugin; see cuda_plugin.h.
#include "comm/cuda_plugin.h"

#include <ddprun/error.h>

#include <filesystem>

#include <dlfcn.h>
#include <fmt/core.h>

// Defined when the plugin is linked into the program, as in the tests.
#pragma weak ddprun_cuda_plugin

namespace ddprun {
namespace {

struct Loaded {
  CudaPlugin* plugin = nullptr;
  std::string why_not;
  bool found = true;
};

std::filesystem::path folder_of_this_library() {
  Dl_info info{};
  ::dladdr(reinterpret_cast<const void*>(&why_no_cuda_plugin), &info);
  return std::filesystem::path(info.dli_fname).parent_path();
}

Loaded load() {
  if (&ddprun_cuda_plugin != nullptr) return {ddprun_cuda_plugin(DDPRUN_VERSION), {}};
  const auto path = folder_of_this_library() / "libddprun_cuda.so";
  std::error_code ignored;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, ignored)))
    return {nullptr, fmt::format("ddprun was built without CUDA ({} is missing)", path.string()),
            false};
  // Never closed: threads and streams of CUDA live as long as the process.
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return {nullptr, fmt::format("{} cannot be loaded: {}", path.string(), ::dlerror())};
  const auto entry =
      reinterpret_cast<decltype(&ddprun_cuda_plugin)>(::dlsym(library, "ddprun_cuda_plugin"));
  CudaPlugin* const plugin = entry == nullptr ? nullptr : entry(DDPRUN_VERSION);
  if (plugin == nullptr)
    return {nullptr, fmt::format("{} is not the plugin of ddprun {}; install both from one build",
                                 path.string(), DDPRUN_VERSION)};
  return {plugin, {}};
}

const Loaded& loaded() {
  static const Loaded once = load();
  return once;
}

}  // namespace

CudaPlugin* cuda_plugin() { return loaded().plugin; }
const std::string& why_no_cuda_plugin() { return loaded().why_not; }
bool built_with_cuda() { return loaded().found; }

CudaPlugin& require_cuda_plugin(const char* what) {
  if (cuda_plugin() == nullptr)
    throw DeviceError(fmt::format("[cuda] {}: {}", what, why_no_cuda_plugin()));
  return *cuda_plugin();
}

}  // namespace ddprun
