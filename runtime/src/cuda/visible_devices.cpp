// SPDX-License-Identifier: MIT
// Counts GPUs; see visible_devices.h.
#include "cuda/visible_devices.h"

#include <ddprun/error.h>

#include <fmt/core.h>

#include "base/env.h"
#include "cuda/cuda_api.h"

namespace ddprun {
namespace {

struct Count {
  int devices = 0;
  std::string why_none;  // for another reason than that none is visible
};

Count count_devices() {
  if (!why_no_cuda().empty()) return {0, why_no_cuda()};
  const CudaApi& api = cuda_api();
  int count = 0;
  const CudaError error = api.cudaGetDeviceCount(&count);
  if (error == kCudaSuccess) return {count, {}};
  api.cudaGetLastError();  // no later call is to report it
  if (error == kCudaErrorNoDevice) return {};
  return {0, fmt::format("cudaGetDeviceCount: {} ({}): {}", api.cudaGetErrorName(error), error,
                         api.cudaGetErrorString(error))};
}

std::string visible_list() {
  const auto list = get_env("CUDA_VISIBLE_DEVICES");
  return list ? "CUDA_VISIBLE_DEVICES=" + *list : "CUDA_VISIBLE_DEVICES is not set";
}

/// A launcher's worker takes its device from LOCAL_RANK, and that is what its user can change.
std::string name_of(int device) {
  const bool is_local_rank = parse_int(get_env("LOCAL_RANK").value_or("")) == device;
  return fmt::format("{} {}", is_local_rank ? "LOCAL_RANK" : "device", device);
}

}  // namespace

int visible_device_count() { return count_devices().devices; }

std::string why_device_unavailable(int device) {
  const Count count = count_devices();
  if (!count.why_none.empty()) return count.why_none;
  if (device >= 0 && device < count.devices) return {};
  if (count.devices == 0) return fmt::format("no visible device ({})", visible_list());
  return fmt::format("{} but {} visible device{} ({})", name_of(device), count.devices,
                     count.devices == 1 ? "" : "s", visible_list());
}

}  // namespace ddprun
