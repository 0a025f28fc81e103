// SPDX-License-Identifier: MIT
// Supervisor: every cell of launcher/STATES.md.
#include "supervisor.h"

#include <csignal>
#include <stdexcept>
#include <vector>

#include <doctest/doctest.h>

using namespace ddprun;

namespace {

using Kind = Action::Kind;
using State = Supervisor::State;
using Actions = std::vector<Action>;

const ExitStatus kOk{};
const ExitStatus kSeven{.signaled = false, .value = 7, .core_dumped = false};

const Actions kStopAfterFailure{{Kind::stop, SIGTERM}, {Kind::start_grace, 0}};

ExitStatus killed_by(int signal) {
  return {.signaled = true, .value = signal, .core_dumped = false};
}

/// A supervisor that has seen these events.
Supervisor after(int max_restarts, const std::vector<Event>& events) {
  Supervisor supervisor(max_restarts);
  for (const Event& event : events) supervisor.step(event);
  return supervisor;
}

Supervisor starting() { return after(0, {}); }
Supervisor running() { return after(0, {Started{}}); }
/// Rank 1 has failed and blames rank 2, which runs; rank 3 has ended well.
Supervisor suspecting(int max_restarts = 0) {
  return after(max_restarts, {Started{}, WorkerExited{3, kOk}, WorkerExited{1, kSeven, 2}});
}
Supervisor failing() { return after(0, {Started{}, WorkerExited{1, kSeven}}); }
Supervisor restarting() { return after(1, {Started{}, WorkerExited{1, kSeven}}); }
Supervisor told_to_stop() { return after(1, {Started{}, StopSignal{SIGINT}}); }
Supervisor finished() { return after(0, {Started{}, GroupGone{}}); }

std::vector<int> ranks_of(const Supervisor& supervisor) {
  std::vector<int> ranks;
  for (const auto& failure : supervisor.failures()) ranks.push_back(failure.local_rank);
  return ranks;
}

void is_a_bug(Supervisor supervisor, const Event& event) {
  CHECK_THROWS_AS(supervisor.step(event), std::logic_error);
}

}  // namespace

TEST_SUITE("launcher") {
  TEST_CASE("Supervisor: begins by starting the workers") {
    CHECK(starting().begin() == Actions{{Kind::start, 0}});
    CHECK(starting().state() == State::starting);
  }

  TEST_CASE("Supervisor: starting") {
    auto started = starting();
    CHECK(started.step(Started{}).empty());
    CHECK(started.state() == State::running);

    auto failed = starting();
    CHECK(failed.step(StartFailed{127}) == Actions{{Kind::finish, 127}});
    CHECK(failed.state() == State::finished);

    auto restart_failed = restarting();
    restart_failed.step(GroupGone{});
    CHECK(restart_failed.step(StartFailed{2}) == Actions{{Kind::finish, 7}});
    CHECK(ranks_of(restart_failed) == std::vector{1});

    auto stopped_restart = restarting();
    stopped_restart.step(GroupGone{});
    CHECK(stopped_restart.step(StopSignal{SIGTERM}) == Actions{{Kind::finish, 143}});
    CHECK(stopped_restart.failures().empty());

    auto stopped = starting();
    CHECK(stopped.step(StopSignal{SIGTERM}) == Actions{{Kind::finish, 143}});
    CHECK(stopped.state() == State::finished);

    is_a_bug(starting(), WorkerExited{0, kOk});
    is_a_bug(starting(), WorkerExited{0, kSeven});
    is_a_bug(starting(), SuspicionOver{});
    is_a_bug(starting(), GroupGone{});
    is_a_bug(starting(), GraceOver{});
  }

  TEST_CASE("Supervisor: running") {
    auto supervisor = running();
    CHECK(supervisor.step(WorkerExited{0, kOk}).empty());
    CHECK(supervisor.state() == State::running);
    CHECK(supervisor.step(GroupGone{}) == Actions{{Kind::finish, 0}});
    CHECK(supervisor.failures().empty());

    auto failed = running();
    CHECK(failed.step(WorkerExited{1, kSeven}) == kStopAfterFailure);
    CHECK(failed.state() == State::stopping);
    CHECK(failed.goal() == Supervisor::Goal::fail);

    auto stopped = running();
    CHECK(stopped.step(StopSignal{SIGHUP}) ==
          Actions{{Kind::stop, SIGHUP}, {Kind::start_grace, 0}});
    CHECK(stopped.goal() == Supervisor::Goal::signal);

    is_a_bug(running(), Started{});
    is_a_bug(running(), StartFailed{75});
    is_a_bug(running(), SuspicionOver{});
    is_a_bug(running(), GraceOver{});
  }

  TEST_CASE("Supervisor: running, a failure that blames another rank") {
    auto blames = running();
    CHECK(blames.step(WorkerExited{1, kSeven, 2}) == Actions{{Kind::start_suspicion, 0}});
    CHECK(blames.state() == State::suspecting);
    CHECK(blames.suspect() == 2);

    auto blames_nobody_who_runs = running();
    blames_nobody_who_runs.step(WorkerExited{2, kOk});
    CHECK(blames_nobody_who_runs.step(WorkerExited{1, kSeven, 2}) == kStopAfterFailure);
    auto blames_itself = running();
    CHECK(blames_itself.step(WorkerExited{1, kSeven, 1}) == kStopAfterFailure);
    auto well = running();
    CHECK(well.step(WorkerExited{1, kOk, 2}).empty());
  }

  TEST_CASE("Supervisor: suspecting, the blamed rank ends") {
    auto badly = suspecting();
    CHECK(badly.step(WorkerExited{0, kOk}).empty());
    CHECK(badly.step(WorkerExited{4, killed_by(SIGTERM), 2}).empty());  // not ours: none was sent
    CHECK(badly.state() == State::suspecting);
    CHECK(badly.step(WorkerExited{2, killed_by(SIGSEGV)}) == kStopAfterFailure);
    CHECK(badly.goal() == Supervisor::Goal::fail);
    CHECK(ranks_of(badly) == std::vector<int>{2, 1, 4});
    CHECK(badly.step(GroupGone{}) == Actions{{Kind::finish, 139}});

    auto well = suspecting(1);
    CHECK(well.step(WorkerExited{2, kOk}) == kStopAfterFailure);
    CHECK(well.goal() == Supervisor::Goal::restart);
    CHECK(ranks_of(well) == std::vector<int>{1});
  }

  TEST_CASE("Supervisor: suspecting, the blamed rank blames another") {
    auto chain = suspecting();
    CHECK(chain.step(WorkerExited{2, kSeven, 4}).empty());  // the same second goes on
    CHECK(chain.suspect() == 4);
    CHECK(chain.step(WorkerExited{4, killed_by(SIGABRT), 1}) == kStopAfterFailure);  // 1 has ended
    CHECK(ranks_of(chain) == std::vector<int>{4, 2, 1});

    auto ends_well = suspecting();
    ends_well.step(WorkerExited{2, kSeven, 4});
    CHECK(ends_well.step(WorkerExited{4, kOk}) == kStopAfterFailure);
    CHECK(ranks_of(ends_well) == std::vector<int>{2, 1});
  }

  TEST_CASE("Supervisor: suspecting, the blamed rank does not end") {
    auto supervisor = suspecting();
    CHECK(supervisor.step(SuspicionOver{}) == kStopAfterFailure);
    CHECK(supervisor.step(WorkerExited{2, killed_by(SIGTERM)}).empty());
    CHECK(ranks_of(supervisor) == std::vector<int>{1});
    CHECK(supervisor.step(GroupGone{}) == Actions{{Kind::finish, 7}});
  }

  TEST_CASE("Supervisor: suspecting, all other events") {
    auto stopped = suspecting(1);
    CHECK(stopped.step(StopSignal{SIGINT}) ==
          Actions{{Kind::stop, SIGINT}, {Kind::start_grace, 0}});
    CHECK(stopped.goal() == Supervisor::Goal::signal);
    CHECK(stopped.step(WorkerExited{2, kSeven}).empty());
    CHECK(stopped.step(GroupGone{}) == Actions{{Kind::finish, 130}});

    is_a_bug(suspecting(), Started{});
    is_a_bug(suspecting(), StartFailed{75});
    is_a_bug(suspecting(), GroupGone{});
    is_a_bug(suspecting(), GraceOver{});
  }

  TEST_CASE("Supervisor: who ended in the last attempt may be blamed in this one") {
    auto supervisor = suspecting(1);
    supervisor.step(WorkerExited{2, kSeven});
    supervisor.step(GroupGone{});
    supervisor.step(Started{});
    CHECK(supervisor.step(WorkerExited{1, kSeven, 2}) == Actions{{Kind::start_suspicion, 0}});
  }

  TEST_CASE("Supervisor: stopping after a failure") {
    auto supervisor = failing();
    CHECK(supervisor.step(WorkerExited{0, kOk}).empty());
    CHECK(supervisor.step(WorkerExited{2, killed_by(SIGTERM)}).empty());
    CHECK(supervisor.step(WorkerExited{3, {.signaled = false, .value = 143, .core_dumped = false}})
              .empty());
    CHECK(supervisor.failures().size() == 1);
    CHECK(supervisor.step(WorkerExited{4, killed_by(SIGABRT)}).empty());
    CHECK(supervisor.step(WorkerExited{5, killed_by(SIGKILL)}).empty());  // not ours: none was sent
    CHECK(supervisor.failures().size() == 3);
    CHECK(supervisor.step(GraceOver{}) == Actions{{Kind::kill, 0}});
    CHECK(supervisor.step(WorkerExited{6, killed_by(SIGKILL)}).empty());
    CHECK(supervisor.failures().size() == 3);
    CHECK(supervisor.step(GroupGone{}) == Actions{{Kind::finish, 7}});

    is_a_bug(failing(), Started{});
    is_a_bug(failing(), StartFailed{75});
    is_a_bug(failing(), SuspicionOver{});
  }

  TEST_CASE("Supervisor: the first failure's code is the job's, whatever fails after it") {
    auto supervisor = after(0, {Started{}, WorkerExited{1, killed_by(SIGSEGV)}});
    supervisor.step(WorkerExited{0, kSeven});
    CHECK(supervisor.failures().front().local_rank == 1);
    CHECK(supervisor.step(GroupGone{}) == Actions{{Kind::finish, 139}});
  }

  TEST_CASE("Supervisor: restarts while there is budget, then fails") {
    auto supervisor = restarting();
    CHECK(supervisor.goal() == Supervisor::Goal::restart);
    CHECK(supervisor.step(WorkerExited{0, killed_by(SIGTERM)}).empty());
    CHECK(supervisor.step(GroupGone{}) == Actions{{Kind::start, 1}});
    CHECK(supervisor.state() == State::starting);
    CHECK(supervisor.attempt() == 1);
    CHECK(supervisor.failures().size() == 1);  // until this attempt has started
    supervisor.step(Started{});
    supervisor.step(WorkerExited{0, kSeven});
    CHECK(supervisor.goal() == Supervisor::Goal::fail);
    CHECK(supervisor.step(GroupGone{}) == Actions{{Kind::finish, 7}});
  }

  TEST_CASE("Supervisor: a KILL of the last attempt does not excuse one of this attempt") {
    auto supervisor = restarting();
    supervisor.step(GraceOver{});
    supervisor.step(GroupGone{});
    supervisor.step(Started{});
    supervisor.step(WorkerExited{0, kSeven});
    supervisor.step(WorkerExited{1, killed_by(SIGKILL)});
    CHECK(supervisor.failures().size() == 2);
  }

  TEST_CASE("Supervisor: a program that cannot be executed is not started again") {
    auto supervisor = after(3, {});
    CHECK(supervisor.step(StartFailed{126}) == Actions{{Kind::finish, 126}});
  }

  TEST_CASE("Supervisor: told to stop, it ends with 128 + signal also when all ranks end well") {
    auto supervisor = told_to_stop();
    CHECK(supervisor.step(WorkerExited{0, kOk}).empty());
    CHECK(supervisor.step(WorkerExited{1, kSeven}).empty());
    CHECK(supervisor.failures().empty());
    CHECK(supervisor.step(GraceOver{}) == Actions{{Kind::kill, 0}});
    CHECK(supervisor.step(GroupGone{}) == Actions{{Kind::finish, 130}});
    CHECK(supervisor.signal() == SIGINT);
    is_a_bug(told_to_stop(), Started{});
    is_a_bug(told_to_stop(), StartFailed{75});
  }

  TEST_CASE("Supervisor: a second signal kills at once and keeps the first one's code") {
    auto supervisor = told_to_stop();
    CHECK(supervisor.step(StopSignal{SIGTERM}) == Actions{{Kind::kill, 0}});
    CHECK(supervisor.step(GroupGone{}) == Actions{{Kind::finish, 130}});
  }

  TEST_CASE("Supervisor: a signal while stopping is forwarded, and the grace is not begun anew") {
    auto fails = failing();
    CHECK(fails.step(StopSignal{SIGINT}) == Actions{{Kind::stop, SIGINT}});
    CHECK(fails.step(WorkerExited{0, killed_by(SIGINT)}).empty());
    CHECK(fails.failures().size() == 1);
    CHECK(fails.step(StopSignal{SIGINT}) == Actions{{Kind::kill, 0}});
    CHECK(fails.step(GroupGone{}) == Actions{{Kind::finish, 7}});

    auto restarts = restarting();
    CHECK(restarts.step(StopSignal{SIGTERM}) == Actions{{Kind::stop, SIGTERM}});
    CHECK(restarts.step(GroupGone{}) == Actions{{Kind::finish, 143}});
  }

  TEST_CASE("Supervisor: finished") {
    CHECK(finished().step(StopSignal{SIGTERM}).empty());
    is_a_bug(finished(), Started{});
    is_a_bug(finished(), StartFailed{75});
    is_a_bug(finished(), WorkerExited{0, kOk});
    is_a_bug(finished(), SuspicionOver{});
    is_a_bug(finished(), GroupGone{});
    is_a_bug(finished(), GraceOver{});
  }
}
