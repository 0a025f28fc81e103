// SPDX-License-Identifier: MIT
// The launcher's run from a configuration to a RunResult: joins the round, hosts the store, starts
// the workers, and carries out what the supervisor decides.
#pragma once

#include <ddprun/launch.h>
#include <ddprun/record.h>

#include <memory>
#include <vector>

#include "rendezvous.h"
#include "run_context.h"
#include "store/tcp_store_server.h"
#include "supervisor.h"
#include "worker_group.h"

namespace ddprun {

/// Threads: the calling thread is its loop; the store server has one of its own.
class Agent {
 public:
  /// `function`: called in forked processes instead of executing a program; empty: none.
  Agent(const LaunchConfig& config, const TrainFn& function);
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;
  ~Agent();

  /// Blocks: until every worker and its session are gone. What left its session goes with this
  /// object: a report need not wait for that.
  RunResult run();
  /// Prints how it failed as the last thing on stderr. Blocks: at most 5 s for a slow reader.
  void report(const RunResult& result);

 private:
  void post(Event event);
  void handle(const Event& event);
  void explain(Supervisor::State before, int suspect, const Event& event);
  void perform(const Action& action);
  void start_attempt();
  void host_store();
  void watch_signals();
  void on_stop_signal(int number);
  void on_job_control(int number);
  void end_grace();
  void finish(int exit_code);
  void describe_failures();

  const LaunchConfig& config_;
  const TrainFn& function_;
  RunContext context_;
  Round round_;
  Supervisor supervisor_;
  RunResult result_;
  std::string first_record_;  // the error record of the first failure
  std::unique_ptr<TcpStoreServer> store_;
  std::unique_ptr<WorkerGroup> group_;
  std::vector<Loop::Watch> signals_;
  Loop::Watch timer_;  // of suspicion, then of grace
};

/// A run as a value, whatever happens; `report`: print a failure's report.
RunResult run_job(const LaunchConfig& config, const TrainFn& function, bool report);

}  // namespace ddprun
