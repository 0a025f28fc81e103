// SPDX-License-Identifier: MIT
// Configuration and round to one plan per rank; see worker_spec.h.
#include "worker_spec.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>

#include <fmt/core.h>
#include <unistd.h>

#include "base/env.h"
#include "base/log.h"
#include "machine.h"
#include "spawn_child.h"

namespace ddprun {
namespace {

bool is_python_script(const ProgramConfig& program) {
  return !program.no_python && !program.module && program.command.front().ends_with(".py");
}

std::vector<std::string> worker_argv(const ProgramConfig& program) {
  std::vector<std::string> argv;
  if (program.module || is_python_script(program)) {
    argv = {get_env("PYTHON_EXEC").value_or("python3"), "-u"};
    if (program.module) argv.emplace_back("-m");
  }
  argv.insert(argv.end(), program.command.begin(), program.command.end());
  return argv;
}

bool names(const std::vector<Streams>& map, int local_rank, Streams stream) {
  if (map.empty()) return false;
  const auto named = static_cast<unsigned>(map.at(static_cast<std::size_t>(local_rank)));
  return (named & static_cast<unsigned>(stream)) != 0;
}

/// With a run directory every stream has its file, and the console too unless redirects says no;
/// tee says yes after all.
StreamPlan plan_stream(const LaunchConfig& config, int local_rank, Streams stream, bool files) {
  const bool alone = config.nodes.nproc_per_node == 1;
  StreamPlan plan;
  plan.inherit = alone && !files;
  if (plan.inherit) return plan;
  plan.file = files;
  plan.console = !files || !names(config.logs.redirects, local_rank, stream) ||
                 names(config.logs.tee, local_rank, stream);
  plan.tag = plan.console && !alone;
  return plan;
}

WorkerEnv worker_env(const LaunchConfig& config, const Round& round, int attempt, int local_rank) {
  WorkerEnv env;
  env.rank = round.first_rank + local_rank;
  env.local_rank = local_rank;
  env.world_size = round.world_size;
  env.local_world_size = config.nodes.nproc_per_node;
  env.node_rank = round.node_rank;
  env.node_count = round.node_count;
  env.role = config.nodes.role;
  env.master_addr = round.master_addr;
  env.master_port = round.master_port;
  env.restart_count = attempt;
  env.max_restarts = config.stop.max_restarts;
  env.run_id = round.run_id;
  env.agent_store = true;
  return env;
}

/// An OpenMP program would take every CPU in every rank; one thread, which is torchrun's choice,
/// leaves most of them idle. Empty: one rank, which may have them all.
std::string omp_threads(int local_world_size) {
  if (local_world_size == 1) return "";
  static const int cpus = usable_cpus();  // reads files: once, not once a rank
  return std::to_string(std::max(1, cpus / local_world_size));
}

}  // namespace

void check_script(const ProgramConfig& program) {
  if (!is_python_script(program)) return;
  const std::filesystem::path path = program.command.front();
  if (::access(path.c_str(), R_OK) != 0) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR)
      throw StartError(127, fmt::format("[launch] {}: not found", path.string()));
    throw StartError(
        126, fmt::format("[launch] {}: cannot be read: {}", path.string(), std::strerror(error)));
  }
  std::error_code ignored;  // what cannot be looked at is Python's to tell
  if (std::filesystem::is_directory(path, ignored) &&
      !std::filesystem::exists(path / "__main__.py", ignored))
    throw StartError(
        126, fmt::format("[launch] {}: is a directory without a __main__.py", path.string()));
}

std::vector<WorkerSpec> make_worker_specs(const LaunchConfig& config, const Round& round,
                                          int attempt, const std::filesystem::path& run_dir) {
  std::vector<WorkerSpec> specs;
  for (int local_rank = 0; local_rank < config.nodes.nproc_per_node; ++local_rank) {
    WorkerSpec spec;
    spec.env = worker_env(config, round, attempt, local_rank);
    spec.argv = worker_argv(config.program);
    spec.out = plan_stream(config, local_rank, Streams::out, !run_dir.empty());
    spec.err = plan_stream(config, local_rank, Streams::err, !run_dir.empty());
    if (!run_dir.empty()) {
      spec.log_dir = run_dir / fmt::format("attempt_{}", attempt) / std::to_string(spec.env.rank);
      spec.env.error_file = spec.log_dir / "error.json";
    }
    specs.push_back(std::move(spec));
  }
  return specs;
}

std::vector<std::pair<std::string, std::string>> worker_variables(const WorkerEnv& env,
                                                                  const std::string& job_tokens) {
  auto variables = env.variables();
  variables.emplace_back("DDPRUN_JOB", job_tokens);
  variables.emplace_back("TORCH_NCCL_ASYNC_ERROR_HANDLING",
                         get_env("TORCH_NCCL_ASYNC_ERROR_HANDLING").value_or("1"));
  const auto inherited = get_env("OMP_NUM_THREADS");
  const std::string threads = inherited ? *inherited : omp_threads(env.local_world_size);
  if (inherited || !threads.empty()) variables.emplace_back("OMP_NUM_THREADS", threads);
  if (!inherited && !threads.empty() && env.local_rank == 0)
    log(LogLevel::info, "env", "OMP_NUM_THREADS={} for each of {} ranks; set it to choose yourself",
        threads, env.local_world_size);
  return variables;
}

std::vector<std::string> worker_environment(const WorkerEnv& env, const std::string& job_tokens) {
  const auto variables = worker_variables(env, job_tokens);
  const auto is_ours = [&variables](std::string_view entry) {
    const auto name = entry.substr(0, entry.find('='));
    return name.size() < entry.size() &&
           std::any_of(variables.begin(), variables.end(),
                       [name](const auto& variable) { return variable.first == name; });
  };
  std::vector<std::string> environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    if (!is_ours(*entry)) environment.emplace_back(*entry);
  for (const auto& [name, value] : variables) environment.push_back(name + '=' + value);
  return environment;
}

}  // namespace ddprun
