// SPDX-License-Identifier: MIT
// The launcher as a library: words -> LaunchConfig -> processes -> RunResult.
// The ddprun program is parse_command_line, run, and an exit code; options and variables are
// torchrun's (https://docs.pytorch.org/docs/stable/elastic/run.html).
#pragma once

#include <ddprun/export.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ddprun {

/// Which of a worker's streams an option speaks of; torchrun's 0, 1, 2, 3.
enum class Streams : std::uint8_t { none = 0, out = 1, err = 2, both = 3 };

/// What to start.
struct ProgramConfig {
  std::vector<std::string> command;  // the program as the user wrote it, then its arguments
  bool module = false;               // -m: command[0] is a Python module
  bool no_python = false;            // --no_python: never put an interpreter in front
};

/// How many, and where they meet.
struct NodesConfig {
  int nnodes = 1;
  int node_rank = 0;
  int nproc_per_node = 1;
  std::string master_addr = "127.0.0.1";
  std::optional<std::uint16_t> master_port;  // empty: 29500 if free, else any
  std::string run_id;                        // --rdzv_id; empty: a new random one
  std::string role = "default";
};

/// Where output goes. Index of the vectors: local rank; empty = none for all.
struct LogsConfig {
  std::filesystem::path log_dir;  // empty: nothing is written, or, when `redirects` takes a stream
                                  // off the console, a directory of its own under $TMPDIR or /tmp
  std::vector<Streams> redirects;
  std::vector<Streams> tee;
};

/// How it ends.
struct StopConfig {
  int max_restarts = 0;
  std::chrono::milliseconds shutdown_timeout = std::chrono::seconds(30);
};

/// Everything the user decided.
struct LaunchConfig {
  ProgramConfig program;
  NodesConfig nodes;
  LogsConfig logs;
  StopConfig stop;
};

/// What a command line asks for.
struct CommandLine {
  LaunchConfig config;
  bool dry_run = false;             // print describe(config) and start nothing
  std::optional<std::string> text;  // --help, --version: print this and exit 0
};

/// `words` without the program's own name. Precedence: command line > PET_* variables > default.
/// Throws: UsageError, one line, naming the option or variable and its value.
DDPRUN_API CommandLine parse_command_line(std::span<const char* const> words);

/// For --dry_run: every rank's argv and the variables it gets on top of the environment, as lines
/// that a shell takes. Starts, binds and makes nothing.
/// Throws: UsageError, as run does, when the configuration cannot work.
DDPRUN_API std::string describe(const LaunchConfig& config);

/// How a process ended, decoded once from its wait status.
struct DDPRUN_API ExitStatus {
  bool signaled = false;
  int value = 0;             // exit code, or signal number when signaled
  bool core_dumped = false;  // only when signaled

  bool ok() const { return !signaled && value == 0; }
  /// The shell's number: the exit code, or 128 + signal.
  int code() const { return signaled ? 128 + value : value; }
  /// "exit code 7", "signal SIGSEGV (11), core dumped".
  std::string text() const;
};

/// One rank that failed by itself; ranks that the launcher stopped are not failures.
struct RankFailure {
  int rank = 0;
  int local_rank = 0;
  int pid = 0;
  int attempt = 0;
  ExitStatus status;
  std::chrono::milliseconds after{0};  // since the start of the attempt
  std::string exception_type;          // from the worker's error file; empty: it left none
  std::string exception_text;
  std::optional<int> culprit;  // the rank that the error file blames
  /// When the culprit had ended with 0, if it did so before the launcher told anybody to stop.
  std::optional<std::chrono::milliseconds> culprit_ended_well_after;
  std::string stderr_tail;            // the last lines it wrote
  std::filesystem::path stderr_path;  // empty: no log files
};

/// How the job ended.
struct RunResult {
  int exit_code = 0;  // see the table in the README
  int attempts = 1;   // how often the workers were started
  /// Of the last attempt that started. The first one decided the exit code: the first to die, or
  /// the rank it blamed, if that one failed within a second; then the others, by order of death.
  std::vector<RankFailure> failures;
  int signal = 0;     // the signal that told the launcher to stop; 0: none
  std::string error;  // why nothing, or no further attempt, could be started; else empty
  std::filesystem::path log_dir;  // this run's directory; empty: none

  bool ok() const { return exit_code == 0; }
};

/// Starts the workers, supervises them to their end, restarts them if the configuration says so,
/// and prints the report of a failure to stderr.
/// Blocks:  until every worker and its descendants are gone.
/// Threads: the calling thread is the launcher's loop until it returns; it takes over SIGINT,
///          SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP and SIGCONT (those that are ignored
///          stay ignored), SIGPIPE, SIGXFSZ and SIGCHLD meanwhile, and puts them back. So it does
///          with the soft limit of open descriptors, which it raises.
DDPRUN_API RunResult run(const LaunchConfig& config);

}  // namespace ddprun
