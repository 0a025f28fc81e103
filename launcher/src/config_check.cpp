// SPDX-License-Identifier: MIT
// The rules between options; see config_check.h.
#include "config_check.h"

#include <ddprun/error.h>

#include <string_view>
#include <system_error>

#include <fmt/core.h>

#include "option_value.h"

namespace ddprun {
namespace {

void require(bool holds, std::string_view what) {
  if (!holds) throw UsageError(fmt::format("[config] {}", what));
}

void check_program(const ProgramConfig& program) {
  require(!program.command.empty(), "no program given");
  require(!program.command.front().empty(), "the program's name is empty");
  require(!(program.module && program.no_python),
          "--module and --no_python exclude each other: a module is run by Python");
}

void check_nodes(const NodesConfig& nodes) {
  require(nodes.nnodes == 1,
          fmt::format("--nnodes {}: one node is what this version can do", nodes.nnodes));
  require(
      nodes.node_rank >= 0 && nodes.node_rank < nodes.nnodes,
      fmt::format("--node_rank {}: must be less than --nnodes {}", nodes.node_rank, nodes.nnodes));
  require(nodes.nproc_per_node >= 1 && nodes.nproc_per_node <= kMaxRanksPerNode,
          fmt::format("--nproc_per_node {}: not in 1..{}", nodes.nproc_per_node, kMaxRanksPerNode));
  require(!nodes.master_addr.empty(), "--master_addr is empty");
}

void check_map(std::string_view option, const std::vector<Streams>& map, int nproc) {
  require(map.empty() || map.size() == static_cast<std::size_t>(nproc),
          fmt::format("--{} speaks of {} local ranks, --nproc_per_node is {}", option, map.size(),
                      nproc));
}

void check_logs(const LogsConfig& logs, int nproc) {
  check_map("redirects", logs.redirects, nproc);
  check_map("tee", logs.tee, nproc);
  if (logs.log_dir.empty()) return;
  std::error_code ignored;  // what cannot be looked at is reported when the directory is made
  const auto status = std::filesystem::status(logs.log_dir, ignored);
  require(!std::filesystem::exists(status) || std::filesystem::is_directory(status),
          fmt::format("--log_dir {}: exists and is not a directory", logs.log_dir.string()));
}

void check_stop(const StopConfig& stop) {
  require(stop.max_restarts >= 0,
          fmt::format("--max_restarts {}: must not be negative", stop.max_restarts));
  require(
      stop.shutdown_timeout.count() >= 0,
      fmt::format("--shutdown_timeout {} ms: must not be negative", stop.shutdown_timeout.count()));
}

}  // namespace

void check_config(const LaunchConfig& config) {
  check_program(config.program);
  check_nodes(config.nodes);
  check_logs(config.logs, config.nodes.nproc_per_node);
  check_stop(config.stop);
}

}  // namespace ddprun
