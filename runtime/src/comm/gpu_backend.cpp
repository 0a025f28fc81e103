// SPDX-License-Identifier: MIT
// The choice between GPU and CPU; see gpu_backend.h.
#include "comm/gpu_backend.h"

#include <ddprun/error.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include <fmt/core.h>

#include "base/env.h"
#include "base/log.h"
#include "comm/cuda_plugin.h"

namespace ddprun {
namespace {

std::string key_of(int rank) { return fmt::format("no_gpu/{}", rank); }

std::string why_unavailable(const ProcessGroupOptions& options, int size) {
  if (cuda_plugin() == nullptr) return why_no_cuda_plugin();
  return cuda_plugin()->why_unavailable(options.device.value_or(0), size);
}

/// Whether somebody meant this process to use a GPU: then it is said that it cannot.
bool gpu_was_meant() {
  if (cuda_plugin() == nullptr && built_with_cuda()) return true;  // but it cannot be loaded
  for (const char* name : {"DDPRUN_CUDART_LIB", "DDPRUN_NCCL_LIB", "CUDA_VISIBLE_DEVICES"})
    if (const auto value = get_env(name); value && !value->empty() && *value != "-1") return true;
  std::error_code ignored;
  return std::filesystem::exists("/dev/nvidiactl", ignored);
}

/// What two numbers per rank tell all ranks: the first rank that cannot use a GPU (size: none), and
/// whether any sees one, or was meant to.
struct Census {
  std::int64_t first_without;
  bool any_sees_one;
};

Census take_census(Backend& host, int rank, int size, bool available, Deadline deadline) {
  const bool sees_one =
      gpu_was_meant() || (cuda_plugin() != nullptr && cuda_plugin()->device_count() > 0);
  std::array<std::int64_t, 2> smallest = {available ? size : rank, sees_one ? 0 : 1};
  Operation operation;  // number 0: part of the set-up
  operation.start = Deadline::Clock::now();
  operation.deadline = deadline;
  host.all_reduce(view(smallest), ReduceOp::min, operation).wait();
  return {smallest[0], smallest[1] == 0};
}

}  // namespace

GpuBackend make_gpu_backend(const std::shared_ptr<Store>& store, Backend& host, int rank, int size,
                            const ProcessGroupOptions& options) {
  if (options.backend == "cpu") return {nullptr, "it was made with backend cpu"};
  const auto deadline = Deadline::after(options.timeout);
  const std::string reason = why_unavailable(options, size);
  if (!reason.empty() && store != nullptr) store->set(key_of(rank), reason);
  const Census census = take_census(host, rank, size, reason.empty(), deadline);
  if (census.first_without == size) {
    const NcclBackendOptions setup{rank, size, options.device.value_or(0), options.timeout};
    return {cuda_plugin()->make_nccl_backend(store, host, setup), {}};
  }
  const auto first = static_cast<int>(census.first_without);
  const std::string why_not = fmt::format(
      "rank {}: {}", first, first == rank ? reason : store->get(key_of(first), deadline));
  if (options.backend == "nccl")
    throw DeviceError(fmt::format("[process_group] set-up: backend nccl: {}", why_not));
  if (rank == 0)
    log(census.any_sees_one ? LogLevel::warning : LogLevel::info, "process_group",
        "backend cpu for all ranks, since {}", why_not);
  return {nullptr, why_not};
}

}  // namespace ddprun
