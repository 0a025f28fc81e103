// SPDX-License-Identifier: MIT
// The table of launcher/STATES.md as code.
#include "supervisor.h"

#include <csignal>
#include <stdexcept>

#include <fmt/core.h>

namespace ddprun {
namespace {

using Kind = Action::Kind;

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

const char* name_of(Supervisor::State state) {
  switch (state) {
    case Supervisor::State::starting:
      return "starting";
    case Supervisor::State::running:
      return "running";
    case Supervisor::State::suspecting:
      return "suspecting";
    case Supervisor::State::stopping:
      return "stopping";
    case Supervisor::State::finished:
      return "finished";
  }
  return "?";
}

}  // namespace

std::vector<Action> Supervisor::step(const Event& event) {
  using Actions = std::vector<Action>;
  return std::visit(
      Overloaded{
          [&](const Started&) -> Actions {
            expect(state_ == State::starting, "Started");
            state_ = State::running;
            failures_.clear();
            return {};
          },
          [&](const StartFailed& failed) -> Actions {
            expect(state_ == State::starting, "StartFailed");
            return finish(failures_.empty() ? failed.exit_code : failures_.front().status.code());
          },
          [&](const WorkerExited& exited) -> Actions { return on_exit(exited); },
          [&](const SuspicionOver&) -> Actions {
            expect(state_ == State::suspecting, "SuspicionOver");
            return stop_after_failure();
          },
          [&](const GroupGone&) -> Actions { return on_gone(); },
          [&](const GraceOver&) -> Actions {
            expect(state_ == State::stopping, "GraceOver");
            killed_ = true;
            return {{Kind::kill, 0}};
          },
          [&](const StopSignal& signal) -> Actions { return on_signal(signal.number); },
      },
      event);
}

std::vector<Action> Supervisor::on_exit(const WorkerExited& event) {
  expect(state_ != State::starting && state_ != State::finished, "WorkerExited");
  ended_.insert(event.local_rank);
  const bool failed = !event.status.ok();
  const Failure failure{event.local_rank, event.status};
  switch (state_) {
    case State::running:
      return failed ? on_first_failure(event) : std::vector<Action>{};
    case State::suspecting:
      if (event.local_rank == suspect_)
        return failed ? on_first_failure(event) : stop_after_failure();
      if (failed) failures_.push_back(failure);
      return {};
    default:
      if (goal_ != Goal::signal && !ended_as_asked(event.status)) failures_.push_back(failure);
      return {};
  }
}

/// What a rank says of another that still runs may be true: that one's end will tell.
std::vector<Action> Supervisor::on_first_failure(const WorkerExited& event) {
  failures_.insert(failures_.begin(), {event.local_rank, event.status});
  if (!event.culprit || ended_.contains(*event.culprit)) return stop_after_failure();
  suspect_ = *event.culprit;
  if (state_ == State::suspecting) return {};  // within the same second
  state_ = State::suspecting;
  return {{Kind::start_suspicion, 0}};
}

std::vector<Action> Supervisor::stop_after_failure() {
  state_ = State::stopping;
  goal_ = attempt_ < max_restarts_ ? Goal::restart : Goal::fail;
  return {{Kind::stop, SIGTERM}, {Kind::start_grace, 0}};
}

std::vector<Action> Supervisor::on_gone() {
  expect(state_ == State::running || state_ == State::stopping, "GroupGone");
  if (state_ == State::running) return finish(0);
  switch (goal_) {
    case Goal::fail:
      return finish(failures_.front().status.code());
    case Goal::signal:
      return finish(128 + signal_);
    case Goal::restart:
      break;
  }
  state_ = State::starting;
  ++attempt_;
  killed_ = false;
  ended_.clear();
  return {{Kind::start, attempt_}};
}

std::vector<Action> Supervisor::on_signal(int number) {
  if (state_ == State::finished) return {};
  if (signal_ != 0) {  // the second one
    killed_ = true;
    return {{Kind::kill, 0}};
  }
  signal_ = number;
  if (state_ == State::starting) {
    failures_.clear();
    return finish(128 + number);
  }
  if (state_ == State::stopping) {  // the grace that runs is not begun anew
    if (goal_ == Goal::restart) goal_ = Goal::signal;
    return {{Kind::stop, number}};
  }
  state_ = State::stopping;
  goal_ = Goal::signal;
  return {{Kind::stop, number}, {Kind::start_grace, 0}};
}

std::vector<Action> Supervisor::finish(int code) {
  state_ = State::finished;
  return {{Kind::finish, code}};
}

/// It ended well, or by a signal that the launcher sent, or with the shell's number for one.
bool Supervisor::ended_as_asked(const ExitStatus& status) const {
  if (status.ok()) return true;
  const int signal = status.code() - 128;
  return signal == SIGTERM || (signal_ != 0 && signal == signal_) || (killed_ && signal == SIGKILL);
}

void Supervisor::expect(bool possible, const char* event) const {
  if (!possible)
    throw std::logic_error(
        fmt::format("[supervisor] {} cannot come while {}", event, name_of(state_)));
}

}  // namespace ddprun
