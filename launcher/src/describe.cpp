// SPDX-License-Identifier: MIT
// --dry_run: the plan in words, and every rank's command as a shell would take it; see launch.h.
#include <ddprun/launch.h>

#include <algorithm>
#include <string_view>

#include <fmt/core.h>

#include "config_check.h"
#include "run_directory.h"
#include "worker_spec.h"

namespace ddprun {
namespace {

/// Plain where a shell leaves it alone, else in single quotes.
std::string shell_word(std::string_view text) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./:,=+@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == text.npos) return std::string(text);
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'')
      out += R"('\'')";
    else
      out += c;
  }
  out += '\'';
  return out;
}

/// The round as far as it is known before anything is bound.
Round expected_round(const NodesConfig& nodes) {
  Round round;
  round.node_rank = nodes.node_rank;
  round.node_count = nodes.nnodes;
  round.world_size = nodes.nproc_per_node;
  round.run_id = nodes.run_id.empty() ? "<random>" : nodes.run_id;
  round.master_addr = nodes.master_addr;
  round.master_port = nodes.master_port.value_or(29500);
  return round;
}

std::string port_text(const std::optional<std::uint16_t>& port) {
  if (!port) return "29500 or any free one";
  return *port == 0 ? "any free one" : std::to_string(*port);
}

std::string stream_text(const StreamPlan& plan, std::string_view name, const WorkerSpec& spec) {
  std::string text;
  if (plan.file) text = (spec.log_dir / name).string() + ".log";
  if (plan.console || plan.inherit) text += text.empty() ? "console" : " and console";
  return fmt::format("{}: {}", name, text);
}

std::string summary(const LaunchConfig& config, const Round& round,
                    const std::filesystem::path& run_dir) {
  const NodesConfig& nodes = config.nodes;
  std::string text = fmt::format(
      "# Dry run: nothing is started, bound or made.\n"
      "# ranks:            {} on {} node, role {}\n"
      "# store:            {}, port {}\n"
      "# run id:           {}\n"
      "# logs:             {}\n"
      "# max_restarts:     {}\n"
      "# shutdown_timeout: {} s\n",
      nodes.nproc_per_node, nodes.nnodes, shell_word(nodes.role), nodes.master_addr,
      port_text(nodes.master_port), shell_word(round.run_id),
      run_dir.empty() ? "no files" : run_dir.string(), config.stop.max_restarts,
      static_cast<double>(config.stop.shutdown_timeout.count()) / 1000);
  return text;
}

}  // namespace

std::string describe(const LaunchConfig& config) {
  check_config(config);
  const Round round = expected_round(config.nodes);
  const auto run_dir = run_directory_pattern(config, round.run_id);
  std::string text = summary(config, round, run_dir);
  for (const WorkerSpec& spec : make_worker_specs(config, round, 0, run_dir)) {
    text +=
        fmt::format("\n# rank {}; {}; {}\n", spec.env.rank, stream_text(spec.out, "stdout", spec),
                    stream_text(spec.err, "stderr", spec));
    for (const auto& [name, value] : worker_variables(spec.env, "<this run>"))
      text += fmt::format("{}={} \\\n", name, shell_word(value));
    for (const std::string& word : spec.argv) text += shell_word(word) + ' ';
    text.back() = '\n';
  }
  return text;
}

}  // namespace ddprun
