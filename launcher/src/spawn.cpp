// SPDX-License-Identifier: MIT
// Ranks by fork; see spawn.h.
#include <ddprun/error.h>
#include <ddprun/spawn.h>

#include <string_view>

#include <fmt/core.h>
#include <unistd.h>

#include "agent.h"
#include "spawn_child.h"

namespace ddprun {
namespace {

/// The CUDA driver opens its memory device when it is initialised, and keeps it open; programs that
/// only ask for the GPUs' state (NVML) do not. /dev/dxg is the same under WSL.
bool cuda_is_initialised() {
  std::vector<int> descriptors;
  try {
    descriptors = open_descriptors();
  } catch (const StartError&) {
    return false;  // no descriptor is left to look with; the run will end for the same reason
  }
  char target[64];
  for (const int fd : descriptors) {
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    const ssize_t n = ::readlink(link.c_str(), target, sizeof(target));
    const std::string_view name(target, n > 0 ? static_cast<std::size_t>(n) : 0);
    if (name == "/dev/nvidia-uvm" || name == "/dev/dxg") return true;
  }
  return false;
}

RunResult spawn_job(const TrainFn& fn, int nprocs, const SpawnOptions& options, bool report) {
  if (nprocs < 1) throw UsageError(fmt::format("[spawn] nprocs={} must be at least 1", nprocs));
  if (cuda_is_initialised())
    throw UsageError(
        "[spawn] CUDA is initialised in this process, and a forked process cannot use it; call "
        "spawn before the first CUDA call, or start the program with ddprun");
  LaunchConfig config;
  config.program.command = {"spawn"};
  config.nodes.nproc_per_node = nprocs;
  config.logs.log_dir = options.log_dir;
  config.stop.shutdown_timeout = options.shutdown_timeout;
  return run_job(config, fn, report);
}

}  // namespace

RunResult run_spawn(const TrainFn& fn, int nprocs, const SpawnOptions& options) {
  return spawn_job(fn, nprocs, options, false);
}

int spawn(const TrainFn& fn, int nprocs, const SpawnOptions& options) {
  return spawn_job(fn, nprocs, options, true).exit_code;
}

}  // namespace ddprun
