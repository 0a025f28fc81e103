// SPDX-License-Identifier: MIT
// What the launcher does when something happens: a pure function of state and event. The table is
// in launcher/STATES.md.
#pragma once

#include <ddprun/launch.h>

#include <cstdint>
#include <optional>
#include <set>
#include <variant>
#include <vector>

namespace ddprun {

/// The workers of this attempt run.
struct Started {};
/// They could not be started, and none of them is left.
struct StartFailed {
  int exit_code = 0;
};
/// A worker has ended; what it left behind and its output may not have.
struct WorkerExited {
  int local_rank = 0;
  ExitStatus status;
  std::optional<int> culprit = {};  // the local rank that its error record blames
};
/// The time that a blamed rank has to end by itself is over.
struct SuspicionOver {};
/// All workers are reaped, their sessions empty and their output read.
struct GroupGone {};
/// The time between asking workers to end and ending them is over.
struct GraceOver {};
/// The launcher was told to end.
struct StopSignal {
  int number = 0;
};
using Event = std::variant<Started, StartFailed, WorkerExited, SuspicionOver, GroupGone, GraceOver,
                           StopSignal>;

struct Action {
  enum class Kind : std::uint8_t {
    start,            // the workers of attempt()
    start_suspicion,  // SuspicionOver comes after a second
    stop,             // send signal `value` to all workers
    start_grace,  // GraceOver comes after shutdown_timeout, SuspicionOver does not come any more
    kill,         // all workers
    finish        // the job's exit code is `value`
  };
  Kind kind = Kind::start;
  int value = 0;

  bool operator==(const Action&) const = default;
};

class Supervisor {
 public:
  enum class State : std::uint8_t { starting, running, suspecting, stopping, finished };
  enum class Goal : std::uint8_t { fail, restart, signal };
  struct Failure {
    int local_rank = 0;
    ExitStatus status;
  };

  explicit Supervisor(int max_restarts) : max_restarts_(max_restarts) {}

  /// What to do at the very beginning.
  std::vector<Action> begin() const { return {{Action::Kind::start, 0}}; }
  /// Throws: std::logic_error for an event that cannot come in this state.
  std::vector<Action> step(const Event& event);

  State state() const { return state_; }
  Goal goal() const { return goal_; }  // of stopping
  int attempt() const { return attempt_; }
  int signal() const { return signal_; }    // the first one that told the launcher to stop, or 0
  int suspect() const { return suspect_; }  // the local rank that suspecting waits for
  /// Of this attempt, or of the last one until this one has started: the first failure, then the
  /// others by order of death. A worker that ended as it was asked to is none.
  const std::vector<Failure>& failures() const { return failures_; }

 private:
  std::vector<Action> on_exit(const WorkerExited& event);
  std::vector<Action> on_first_failure(const WorkerExited& event);
  std::vector<Action> stop_after_failure();
  std::vector<Action> on_gone();
  std::vector<Action> on_signal(int number);
  std::vector<Action> finish(int code);
  bool ended_as_asked(const ExitStatus& status) const;
  void expect(bool possible, const char* event) const;

  int max_restarts_;
  State state_ = State::starting;
  Goal goal_ = Goal::fail;
  int attempt_ = 0;
  int signal_ = 0;
  bool killed_ = false;
  int suspect_ = 0;
  std::set<int> ended_;  // local ranks of this attempt
  std::vector<Failure> failures_;
};

}  // namespace ddprun
