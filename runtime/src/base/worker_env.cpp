// SPDX-License-Identifier: MIT
// torchrun's variables to and from a WorkerEnv; see worker_env.h.
#include <ddprun/worker_env.h>

#include <limits>

#include <fmt/core.h>

#include <ddprun/error.h>

#include "base/env.h"

namespace ddprun {
namespace {

int read_int(const char* name, std::optional<int> fallback, int low,
             int high = std::numeric_limits<int>::max()) {
  const auto text = get_env(name);
  if (!text) {
    if (fallback) return *fallback;
    throw UsageError(fmt::format(
        "[env] {} is not set, but RANK is; set both, or start the program with ddprun", name));
  }
  const auto value = parse_int(*text);
  if (!value || *value < low || *value > high)
    throw UsageError(
        fmt::format("[env] {}='{}' is not a whole number in {}..{}", name, *text, low, high));
  return static_cast<int>(*value);
}

void require_less(const char* name, int value, const char* limit_name, int limit) {
  if (value >= limit)
    throw UsageError(fmt::format("[env] {}={} must be less than {}={}", name, value, limit_name,
                                 limit));
}

}  // namespace

std::optional<WorkerEnv> WorkerEnv::from_environment() {
  if (!get_env("RANK")) return std::nullopt;
  WorkerEnv env;
  env.rank = read_int("RANK", std::nullopt, 0);
  env.world_size = read_int("WORLD_SIZE", std::nullopt, 1);
  env.local_rank = read_int("LOCAL_RANK", env.rank, 0);
  env.local_world_size = read_int("LOCAL_WORLD_SIZE", env.world_size, 1);
  env.node_rank = read_int("GROUP_RANK", 0, 0);
  env.node_count = read_int("GROUP_WORLD_SIZE", 1, 1);
  require_less("RANK", env.rank, "WORLD_SIZE", env.world_size);
  require_less("LOCAL_RANK", env.local_rank, "LOCAL_WORLD_SIZE", env.local_world_size);
  require_less("GROUP_RANK", env.node_rank, "GROUP_WORLD_SIZE", env.node_count);
  env.role = get_env("ROLE_NAME").value_or(env.role);
  env.master_addr = get_env("MASTER_ADDR").value_or(env.master_addr);
  env.master_port = static_cast<std::uint16_t>(
      read_int("MASTER_PORT", 29500, 0, std::numeric_limits<std::uint16_t>::max()));
  env.restart_count = read_int("TORCHELASTIC_RESTART_COUNT", 0, 0);
  env.max_restarts = read_int("TORCHELASTIC_MAX_RESTARTS", 0, 0);
  env.run_id = get_env("TORCHELASTIC_RUN_ID").value_or(env.run_id);
  env.agent_store = get_env("TORCHELASTIC_USE_AGENT_STORE") == "True";
  env.error_file = get_env("TORCHELASTIC_ERROR_FILE").value_or("");
  return env;
}

std::vector<std::pair<std::string, std::string>> WorkerEnv::variables() const {
  return {
      {"RANK", std::to_string(rank)},
      {"LOCAL_RANK", std::to_string(local_rank)},
      {"WORLD_SIZE", std::to_string(world_size)},
      {"LOCAL_WORLD_SIZE", std::to_string(local_world_size)},
      {"GROUP_RANK", std::to_string(node_rank)},
      {"GROUP_WORLD_SIZE", std::to_string(node_count)},
      {"ROLE_RANK", std::to_string(rank)},
      {"ROLE_WORLD_SIZE", std::to_string(world_size)},
      {"ROLE_NAME", role},
      {"MASTER_ADDR", master_addr},
      {"MASTER_PORT", std::to_string(master_port)},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(restart_count)},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(max_restarts)},
      {"TORCHELASTIC_RUN_ID", run_id},
      {"TORCHELASTIC_USE_AGENT_STORE", agent_store ? "True" : "False"},
      {"TORCHELASTIC_ERROR_FILE", error_file},
  };
}

}  // namespace ddprun
