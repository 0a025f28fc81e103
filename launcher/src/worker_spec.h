// SPDX-License-Identifier: MIT
// What to start for one rank: the plan between configuration and processes.
#pragma once

#include <ddprun/launch.h>
#include <ddprun/record.h>
#include <ddprun/worker_env.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous.h"

namespace ddprun {

/// Where one stream of one worker goes. inherit: it is the launcher's own descriptor (one rank on
/// the node and no file), and the others are false.
struct StreamPlan {
  bool inherit = false;
  bool file = false;
  bool console = false;
  bool tag = false;  // "[rank3]: " before every console line
};

struct WorkerSpec {
  WorkerEnv env;                  // error_file empty: the process start makes one in memory
  std::vector<std::string> argv;  // executed with PATH search; empty: function is called instead
  TrainFn function;
  StreamPlan out;
  StreamPlan err;
  std::filesystem::path log_dir;  // of this rank and attempt, absolute; empty: none
};

/// A script that Python would not find is refused here: Python's own words, once per rank, look
/// like a failure of the training, and lead to restarts. Throws: StartError: 127 not there, 126 not
/// readable, or a directory without a program.
void check_script(const ProgramConfig& program);

/// The specs of this node's workers, by local rank.
/// `run_dir`: this run's log directory, absolute; empty when nothing is written.
/// Throws: UsageError.
std::vector<WorkerSpec> make_worker_specs(const LaunchConfig& config, const Round& round,
                                          int attempt, const std::filesystem::path& run_dir);

/// Name and value of what ddprun sets for a worker, each name once. `job_tokens`: value of
/// DDPRUN_JOB, by which the reaper finds the descendants of a killed job.
std::vector<std::pair<std::string, std::string>> worker_variables(const WorkerEnv& env,
                                                                  const std::string& job_tokens);

/// The whole environment of a worker: the launcher's own entries byte for byte (also those without
/// '=' or with a repeated name), less those that ddprun sets, then worker_variables as
/// "NAME=value".
std::vector<std::string> worker_environment(const WorkerEnv& env, const std::string& job_tokens);

}  // namespace ddprun
