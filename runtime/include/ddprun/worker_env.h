// SPDX-License-Identifier: MIT
// What the launcher tells one worker about itself: torchrun's environment variables as a value.
// Written by the launcher (variables), read by the runtime (from_environment); nowhere else.
// https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/export.h>

namespace ddprun {

struct DDPRUN_API WorkerEnv {
  int rank = 0;                           // RANK
  int local_rank = 0;                     // LOCAL_RANK
  int world_size = 1;                     // WORLD_SIZE
  int local_world_size = 1;               // LOCAL_WORLD_SIZE
  int node_rank = 0;                      // GROUP_RANK
  int node_count = 1;                     // GROUP_WORLD_SIZE
  std::string role = "default";           // ROLE_NAME; one role a job, so ROLE_RANK = RANK
  std::string master_addr = "127.0.0.1";  // MASTER_ADDR
  std::uint16_t master_port = 0;          // MASTER_PORT
  int restart_count = 0;                  // TORCHELASTIC_RESTART_COUNT
  int max_restarts = 0;                   // TORCHELASTIC_MAX_RESTARTS
  std::string run_id = "none";            // TORCHELASTIC_RUN_ID
  bool agent_store = false;               // TORCHELASTIC_USE_AGENT_STORE: True = the launcher hosts
  std::string error_file;                 // TORCHELASTIC_ERROR_FILE; empty = nobody asks

  /// Empty when RANK is not set (started by hand). Only RANK and WORLD_SIZE are required; the
  /// others have the defaults above, LOCAL_* those of one node.
  /// Throws: UsageError naming the variable that is missing, not a number, or contradicts another.
  static std::optional<WorkerEnv> from_environment();

  /// Name and value of every variable above, plus ROLE_RANK and ROLE_WORLD_SIZE.
  std::vector<std::pair<std::string, std::string>> variables() const;
};

}  // namespace ddprun
