// SPDX-License-Identifier: MIT
// The loop between events and actions; see agent.h and launcher/STATES.md.
#include "agent.h"

#include <ddprun/error.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

#include <boost/system/system_error.hpp>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/random.h>
#include <unistd.h>

#include "error_file.h"
#include "report.h"
#include "run_directory.h"

namespace ddprun {
namespace {

constexpr std::chrono::seconds kLastWords{5};
/// For a blamed rank to end by itself. One that fails unwinds, writes its record and is gone in
/// milliseconds; a second is enough on a loaded machine, and short beside what a failure costs.
constexpr std::chrono::seconds kSuspicion{1};

std::string random_token() {
  std::array<unsigned char, 16> bytes = {};
  if (::getrandom(bytes.data(), bytes.size(), 0) < 0)
    throw StartError::from_errno("getrandom", errno);
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

/// A pipe must not become descriptor 0, 1 or 2 because the caller closed them.
void fill_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) < 0)
      throw StartError::from_errno("open /dev/null", errno);
}

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name ? fmt::format("SIG{}", name) : fmt::format("signal {}", number);
}

std::string count_workers(int n) { return fmt::format("{} worker{}", n, n == 1 ? "" : "s"); }

/// The exit code for what kept a run from starting, or from going on.
int exit_code_of(const std::exception& error) {
  if (dynamic_cast<const boost::system::system_error*>(&error)) return 75;  // Asio's
  if (const auto* start = dynamic_cast<const StartError*>(&error)) return start->exit_code();
  if (dynamic_cast<const UsageError*>(&error)) return 2;
  if (dynamic_cast<const std::filesystem::filesystem_error*>(&error)) return 2;
  if (dynamic_cast<const Error*>(&error)) return 75;
  if (dynamic_cast<const std::system_error*>(&error)) return 75;
  if (dynamic_cast<const std::bad_alloc*>(&error)) return 75;
  return 70;
}

std::string text_of(const std::exception& error) {
  if (const auto* system = dynamic_cast<const boost::system::system_error*>(&error))
    return StartError::from_errno("event loop", system->code().value()).what();
  return error.what();
}

}  // namespace

Agent::Agent(const LaunchConfig& config, const TrainFn& function)
    : config_(config),
      function_(function),
      context_(random_token()),
      supervisor_(config.stop.max_restarts) {}

Agent::~Agent() = default;

RunResult Agent::run() {
  try {
    round_ = join_single_node(config_.nodes);
    result_.log_dir = make_run_directory(config_, round_.run_id);
    if (!result_.log_dir.empty())
      context_.console.say(fmt::format("logs: {}", result_.log_dir.string()));
    watch_signals();
    for (const Action& action : supervisor_.begin()) perform(action);
    context_.loop.run();
  } catch (const std::exception& error) {
    result_.exit_code = exit_code_of(error);
    result_.error = text_of(error);
  }
  group_.reset();
  signals_.clear();
  store_.reset();
  return result_;
}

void Agent::report(const RunResult& result) {
  context_.console.print(format_report(result));
  context_.console.finish(Deadline::after(kLastWords));
}

void Agent::watch_signals() {
  const auto watch = [this](std::vector<int> numbers, std::function<void(int)> callback) {
    std::erase_if(numbers, [this](int number) { return context_.signals.ignored(number); });
    signals_.push_back(context_.loop.on_signals(numbers, std::move(callback)));
  };
  watch({SIGINT, SIGTERM, SIGHUP, SIGQUIT}, [this](int number) { on_stop_signal(number); });
  watch({SIGUSR1, SIGUSR2}, [this](int number) {
    if (group_) group_->relay(number);
  });
  watch({SIGTSTP, SIGCONT}, [this](int number) { on_job_control(number); });
}

void Agent::on_stop_signal(int number) {
  const int running = group_ ? group_->running() : 0;
  const bool again = supervisor_.signal() != 0;
  std::string text = fmt::format("received {}{}", signal_name(number), again ? " again" : "");
  if (running > 0)
    text += fmt::format(", {} {}", again ? "killing" : "stopping", count_workers(running));
  context_.console.say(text);
  post(StopSignal{number});
}

void Agent::on_job_control(int number) {
  if (group_) group_->signal_all(number == SIGTSTP ? SIGSTOP : SIGCONT);
  if (number == SIGTSTP) ::raise(SIGSTOP);
}

/// An event of the group has a turn of the loop to itself: its actions may end the group. Those of
/// the timer have one already, and must not come after it was reset.
void Agent::post(Event event) {
  context_.loop.post([this, event = std::move(event)] { handle(event); });
}

void Agent::handle(const Event& event) {
  const auto before = supervisor_.state();
  const int suspect = supervisor_.suspect();
  const auto actions = supervisor_.step(event);
  if (before == Supervisor::State::running || before == Supervisor::State::suspecting)
    explain(before, suspect, event);
  for (const Action& action : actions) perform(action);
}

/// Why the workers are being stopped, or are not yet.
void Agent::explain(Supervisor::State before, int suspect, const Event& event) {
  const auto* exited = std::get_if<WorkerExited>(&event);
  const bool awaited = before == Supervisor::State::suspecting;
  std::string text;
  if (std::holds_alternative<SuspicionOver>(event))
    text = fmt::format("rank {} did not end within {} s", round_.first_rank + suspect,
                       kSuspicion.count());
  else if (exited && awaited && exited->local_rank == suspect && exited->status.ok())
    text = fmt::format("rank {} ended with exit code 0", round_.first_rank + suspect);
  else if (exited && !exited->status.ok() && (!awaited || exited->local_rank == suspect))
    text = fmt::format("rank {} failed: {}", round_.first_rank + exited->local_rank,
                       exited->status.text());
  else
    return;
  if (supervisor_.state() == Supervisor::State::suspecting)
    text += fmt::format("; it blames rank {}, which still runs: waiting for that one's end",
                        round_.first_rank + supervisor_.suspect());
  else if (group_->running() > 0)
    text += fmt::format("; stopping {}", count_workers(group_->running()));
  context_.console.say(text);
}

void Agent::perform(const Action& action) {
  switch (action.kind) {
    case Action::Kind::start:
      start_attempt();
      break;
    case Action::Kind::stop:
      group_->stop(action.value);
      break;
    case Action::Kind::start_suspicion:
      timer_ = context_.loop.after(kSuspicion, [this] { handle(SuspicionOver{}); });
      break;
    case Action::Kind::start_grace:
      timer_ = context_.loop.after(config_.stop.shutdown_timeout, [this] { end_grace(); });
      break;
    case Action::Kind::kill:
      group_->kill();
      break;
    case Action::Kind::finish:
      finish(action.value);
      break;
  }
}

void Agent::start_attempt() {
  timer_.reset();
  const int attempt = supervisor_.attempt();
  try {
    describe_failures();  // they go with the group, and are the end if this attempt cannot start
    group_.reset();
    result_.attempts = attempt + 1;
    if (attempt > 0) {
      context_.console.say(fmt::format("starting all ranks again, restart {} of {}", attempt,
                                       config_.stop.max_restarts));
      store_->start_attempt();
    }
    if (!function_) check_script(config_.program);
    auto specs = make_worker_specs(config_, round_, attempt, result_.log_dir);
    if (function_) {
      for (WorkerSpec& spec : specs) {
        spec.argv.clear();
        spec.function = function_;
      }
    } else {
      host_store();
    }
    group_ = std::make_unique<WorkerGroup>(
        context_, std::move(specs),
        WorkerGroup::Handlers{[this](int local_rank, ExitStatus status) {
                                const auto culprit =
                                    status.ok() ? std::nullopt : group_->culprit(local_rank);
                                post(WorkerExited{local_rank, status, culprit});
                              },
                              [this] { post(GroupGone{}); }});
    host_store();  // a forked function must not inherit a thread's locks
    post(Started{});
  } catch (const std::exception& error) {
    group_.reset();
    result_.error = text_of(error);
    post(StartFailed{exit_code_of(error)});
  }
}

void Agent::host_store() {
  if (store_) return;
  const BlockedSignals blocked;  // they are the loop's
  store_ = std::make_unique<TcpStoreServer>(std::move(round_.listener));
}

void Agent::end_grace() {
  const std::string late =
      fmt::format("did not end within {:g} s (--shutdown_timeout)",
                  std::chrono::duration<double>(config_.stop.shutdown_timeout).count());
  if (group_->running() > 0)
    context_.console.say(fmt::format("{} {}: {}; killing", count_workers(group_->running()), late,
                                     group_->describe_running()));
  for (const std::string& leftovers : group_->describe_leftovers())
    context_.console.say(fmt::format("{} {}; killing", leftovers, late));
  handle(GraceOver{});
}

void Agent::finish(int exit_code) {
  timer_.reset();
  result_.exit_code = exit_code;
  result_.signal = supervisor_.signal();
  describe_failures();
  if (!result_.failures.empty()) forward_error_record(first_record_, exit_code);
  context_.loop.stop();
}

void Agent::describe_failures() {
  if (!group_) return;
  result_.failures.clear();
  for (const auto& failure : supervisor_.failures())
    result_.failures.push_back(group_->describe(failure.local_rank));
  if (!supervisor_.failures().empty())
    first_record_ = group_->error_record(supervisor_.failures().front().local_rank);
}

RunResult run_job(const LaunchConfig& config, const TrainFn& function, bool report) {
  RunResult result;
  try {
    fill_standard_descriptors();
    Agent agent(config, function);
    result = agent.run();
    if (report) agent.report(result);
    return result;
  } catch (const std::exception& error) {
    result.exit_code = exit_code_of(error);
    result.error = text_of(error);
  }
  if (report) std::fputs(format_report(result).c_str(), stderr);
  return result;
}

RunResult run(const LaunchConfig& config) { return run_job(config, {}, true); }

}  // namespace ddprun
