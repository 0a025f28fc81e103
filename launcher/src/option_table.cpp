// SPDX-License-Identifier: MIT
// ddprun's options, their defaults, and what each sets; see option_table.h.
#include "option_table.h"

#include <array>
#include <cctype>
#include <chrono>
#include <cstdint>
#include <limits>

#include "help.h"

namespace ddprun {
namespace {

constexpr std::array kOptions = {
    Option{.name = "nproc_per_node",
           .value_name = "N|auto|cpu|gpu",
           .default_text = "1",
           .group = OptionGroup::nodes,
           .help =
               "ranks on this node, at most 4096; cpu: as many as CPUs may be used; gpu: as many "
               "as GPUs are visible; auto: gpu if there is one, else cpu",
           .apply =
               [](CommandLine& line, const OptionValue& value) {
                 line.config.nodes.nproc_per_node = parse_nproc(value);
               }},
    Option{
        .name = "nnodes",
        .value_name = "N",
        .default_text = "1",
        .group = OptionGroup::nodes,
        .help = "nodes of the job; this version can do 1",
        .apply = [](CommandLine& line,
                    const OptionValue& value) { line.config.nodes.nnodes = parse_nnodes(value); }},
    Option{.name = "node_rank",
           .value_name = "N",
           .default_text = "0",
           .group = OptionGroup::nodes,
           .help = "which of them this one is",
           .apply =
               [](CommandLine& line, const OptionValue& value) {
                 line.config.nodes.node_rank =
                     parse_number(value, 0, std::numeric_limits<int>::max());
               }},
    Option{.name = "standalone",
           .default_text = "false",
           .group = OptionGroup::nodes,
           .help = "use any free port, unless --master_port is given",
           .apply =
               [](CommandLine& line, const OptionValue& value) {
                 if (parse_flag(value)) line.config.nodes.master_port = 0;
               }},
    Option{.name = "master_addr",
           .value_name = "HOST",
           .default_text = "127.0.0.1",
           .group = OptionGroup::nodes,
           .help = "address of this machine at which the ranks meet",
           .apply = [](CommandLine& line,
                       const OptionValue& value) { line.config.nodes.master_addr = value.text; }},
    Option{.name = "master_port",
           .value_name = "PORT",
           .group = OptionGroup::nodes,
           .help = "its port; 0: any free one (default: 29500 if it is free, else any)",
           .apply =
               [](CommandLine& line, const OptionValue& value) {
                 const int port = parse_number(value, 0, std::numeric_limits<std::uint16_t>::max());
                 line.config.nodes.master_port = static_cast<std::uint16_t>(port);
               }},
    Option{.name = "rdzv_id",
           .value_name = "ID",
           .group = OptionGroup::nodes,
           .help = "name of the run (default: a random one)",
           .apply = [](CommandLine& line,
                       const OptionValue& value) { line.config.nodes.run_id = value.text; }},
    Option{.name = "role",
           .value_name = "NAME",
           .default_text = "default",
           .group = OptionGroup::nodes,
           .help = "ROLE_NAME of the ranks",
           .apply = [](CommandLine& line,
                       const OptionValue& value) { line.config.nodes.role = value.text; }},
    Option{
        .name = "module",
        .short_name = 'm',
        .default_text = "false",
        .group = OptionGroup::program,
        .help = "program is a Python module: python3 -u -m program",
        .apply = [](CommandLine& line,
                    const OptionValue& value) { line.config.program.module = parse_flag(value); }},
    Option{.name = "no_python",
           .default_text = "false",
           .group = OptionGroup::program,
           .help = "execute program itself, even when its name ends in .py",
           .apply =
               [](CommandLine& line, const OptionValue& value) {
                 line.config.program.no_python = parse_flag(value);
               }},
    Option{.name = "log_dir",
           .value_name = "DIR",
           .group = OptionGroup::logs,
           .help = "write every rank's output to files under DIR, and to the console (default: no "
                   "files, or, with --redirects, a directory of its own in $TMPDIR or /tmp)",
           .apply = [](CommandLine& line,
                       const OptionValue& value) { line.config.logs.log_dir = value.text; }},
    Option{.name = "redirects",
           .short_name = 'r',
           .value_name = "MAP",
           .default_text = "0",
           .group = OptionGroup::logs,
           .help = "streams that go to files only: 0 none, 1 stdout, 2 stderr, 3 both; for every "
                   "rank, or by local rank as in 0:1,12:3",
           .apply =
               [](CommandLine& line, const OptionValue& value) {
                 line.config.logs.redirects =
                     parse_streams(value, line.config.nodes.nproc_per_node);
               }},
    Option{.name = "tee",
           .short_name = 't',
           .value_name = "MAP",
           .default_text = "0",
           .group = OptionGroup::logs,
           .help = "those of them that go to the console as well",
           .apply =
               [](CommandLine& line, const OptionValue& value) {
                 line.config.logs.tee = parse_streams(value, line.config.nodes.nproc_per_node);
               }},
    Option{.name = "max_restarts",
           .value_name = "N",
           .default_text = "0",
           .group = OptionGroup::stop,
           .help = "how often all ranks are started again after a failure",
           .apply =
               [](CommandLine& line, const OptionValue& value) {
                 line.config.stop.max_restarts = parse_number(value, 0, kMaxRestarts);
               }},
    Option{.name = "shutdown_timeout",
           .value_name = "SECONDS",
           .default_text = "30",
           .group = OptionGroup::stop,
           .help = "from the signal that stops a rank to SIGKILL; 0: SIGKILL at once",
           .second_variable = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT",
           .apply =
               [](CommandLine& line, const OptionValue& value) {
                 line.config.stop.shutdown_timeout =
                     std::chrono::seconds(parse_number(value, 0, kMaxShutdownSeconds));
               }},
    Option{.name = "dry_run",
           .group = OptionGroup::about,
           .help = "print every rank's command and variables; start nothing",
           .apply = [](CommandLine& line, const OptionValue&) { line.dry_run = true; }},
    Option{.name = "help",
           .short_name = 'h',
           .group = OptionGroup::about,
           .help = "print this",
           .apply = [](CommandLine& line, const OptionValue&) { line.text = help_text(); }},
    Option{.name = "version",
           .group = OptionGroup::about,
           .help = "print the version",
           .apply = [](CommandLine& line, const OptionValue&) { line.text = version_text(); }},
};

constexpr std::array kAbsent = {
    AbsentOption{.name = "rdzv_backend",
                 .advice = "leave it out: on one node the ranks meet without it"},
    AbsentOption{.name = "rdzv_endpoint", .advice = "use --master_addr and --master_port"},
    AbsentOption{.name = "rdzv_conf"},
    AbsentOption{.name = "monitor_interval",
                 .advice = "leave it out: the end of a rank is noticed at once"},
    AbsentOption{.name = "start_method"},
    AbsentOption{.name = "run_path"},
    AbsentOption{.name = "event_log_handler"},
    AbsentOption{.name = "log_line_prefix_template"},
    AbsentOption{.name = "local_ranks_filter",
                 .advice = "use --redirects for the ranks to leave out"},
    AbsentOption{.name = "duplicate_stdout_filters"},
    AbsentOption{.name = "duplicate_stderr_filters"},
    AbsentOption{.name = "local_addr", .advice = "use --master_addr"},
    AbsentOption{.name = "logs_specs"},
    AbsentOption{.name = "numa_binding"},
    AbsentOption{.name = "signals_to_handle"},
    AbsentOption{.name = "exit_barrier_timeout"},
    AbsentOption{.name = "virtual_local_rank"},
    AbsentOption{.name = "print_completion"},
    AbsentOption{.name = "use_env",
                 .advice = "leave it out: LOCAL_RANK is always in the environment"},
};

std::string pet_variable(std::string_view name) {
  std::string variable = "PET_";
  for (const char c : name)
    variable += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return variable;
}

}  // namespace

std::string_view name_of(OptionGroup group) {
  switch (group) {
    case OptionGroup::program:
      return "program";
    case OptionGroup::nodes:
      return "nodes";
    case OptionGroup::logs:
      return "logs";
    case OptionGroup::stop:
      return "stop";
    case OptionGroup::about:
      return "about";
  }
  return "?";
}

std::string Option::variable() const {
  return group == OptionGroup::about ? "" : pet_variable(name);
}

std::string AbsentOption::variable() const { return pet_variable(name); }

std::span<const Option> option_table() { return kOptions; }

std::span<const AbsentOption> absent_options() { return kAbsent; }

}  // namespace ddprun
