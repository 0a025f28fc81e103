// SPDX-License-Identifier: MIT
// All workers of this node in one attempt: their processes, their output, and what is known of
// their end.
#pragma once

#include <ddprun/launch.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "run_context.h"
#include "worker_spec.h"

namespace ddprun {

/// Threads: the loop's.
class WorkerGroup {
 public:
  struct Handlers {
    std::function<void(int local_rank, ExitStatus)> exited;
    std::function<void()> gone;  // all of them: reaped, sessions empty, output read
  };

  /// Starts a process for every spec, in their order.
  /// Throws: StartError, UsageError (a log file); those already started are killed and reaped then.
  WorkerGroup(RunContext& context, std::vector<WorkerSpec> specs, Handlers handlers);
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;
  /// Kills and reaps whatever is left.
  ~WorkerGroup();

  /// How many workers have not ended.
  int running() const { return running_; }
  /// "rank 1 (pid 4711), rank 3 (pid 4713)".
  std::string describe_running() const;
  /// One text for every rank that has ended while its session has not: "a process that rank 0 left
  /// behind (pid 123, sleep)".
  std::vector<std::string> describe_leftovers() const;
  void stop(int signal);
  void kill();
  /// To whole sessions; ends nothing.
  void signal_all(int signal);
  /// To the workers alone.
  void relay(int signal);

  /// The local rank that the error record of a worker that has ended blames, if it is one of these.
  std::optional<int> culprit(int local_rank) const;
  /// All that is known of a worker's failure; complete once the group is gone.
  RankFailure describe(int local_rank) const;
  /// What the worker wrote to its error file.
  std::string error_record(int local_rank) const;

 private:
  struct Worker;
  void start(Worker& worker);
  void on_exit(Worker& worker, ExitStatus status);
  void on_left_behind(const Worker& worker);
  void on_process_gone(Worker& worker);
  void on_drained(Worker& worker);
  void resume_output();

  RunContext& context_;
  Handlers handlers_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::vector<char> buffer_;  // of all log pumps
  std::vector<std::unique_ptr<Worker>> workers_;
  bool stopping_ = false;
  int running_ = 0;
  int not_gone_ = 0;
};

}  // namespace ddprun
