// SPDX-License-Identifier: MIT
// Starts workers and gathers their ends; see worker_group.h.
#include "worker_group.h"

#include <ddprun/error.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include <fmt/core.h>

#include "error_file.h"
#include "log_pump.h"
#include "process.h"

namespace ddprun {
namespace {

constexpr std::size_t kReadSize = 64 * 1024;
constexpr std::chrono::seconds kDrainLimit{2};
constexpr int kTailLines = 20;
constexpr std::size_t kTailBytes = 8 * 1024;
constexpr std::size_t kNamedLeftovers = 4;

}  // namespace

struct WorkerGroup::Worker {
  explicit Worker(WorkerSpec worker_spec)
      : spec(std::move(worker_spec)), error_file(spec.env.error_file) {
    spec.env.error_file = error_file.path();
  }

  WorkerSpec spec;
  ErrorFile error_file;
  LogTail tail;
  std::optional<LogPump> out;  // none: the launcher's own descriptor
  std::optional<LogPump> err;
  std::unique_ptr<Process> process;
  int pid = 0;
  int open_pumps = 0;
  std::optional<ExitStatus> status;  // empty: it runs
  std::chrono::milliseconds after{0};
  bool by_itself = false;  // it ended before anybody told it to
};

namespace {

LogPump::Targets targets_of(RunContext& context, const StreamPlan& plan, const WorkerSpec& spec,
                            const char* file) {
  LogPump::Targets targets;
  if (plan.file)
    targets.file.emplace(spec.log_dir / file, [&context, rank = spec.env.rank](auto text) {
      context.console.say(fmt::format("warning: rank {}: {}", rank, text));
    });
  targets.console = plan.console ? &context.console : nullptr;
  return targets;
}

LogSource source_of(const WorkerSpec& spec, Streams stream, const StreamPlan& plan) {
  return {.rank = spec.env.rank,
          .stream = stream,
          .tag = plan.tag ? fmt::format("[rank{}]: ", spec.env.rank) : ""};
}

/// "pid 123, sleep; pid 124, cat".
std::string list_of(const std::vector<Leftover>& leftovers) {
  std::string text;
  for (std::size_t i = 0; i < std::min(leftovers.size(), kNamedLeftovers); ++i)
    text += fmt::format("{}pid {}, {}", i == 0 ? "" : "; ", leftovers[i].pid, leftovers[i].name);
  if (leftovers.size() > kNamedLeftovers)
    text += fmt::format("; and {} more", leftovers.size() - kNamedLeftovers);
  return text;
}

}  // namespace

WorkerGroup::WorkerGroup(RunContext& context, std::vector<WorkerSpec> specs, Handlers handlers)
    : context_(context), handlers_(std::move(handlers)), buffer_(kReadSize) {
  for (WorkerSpec& spec : specs) {
    workers_.push_back(std::make_unique<Worker>(std::move(spec)));
    start(*workers_.back());
  }
  context_.console.on_room([this] { resume_output(); });
}

WorkerGroup::~WorkerGroup() { context_.console.on_room(nullptr); }

void WorkerGroup::start(Worker& worker) {
  WorkerSpec& spec = worker.spec;
  if (!spec.log_dir.empty()) {
    std::error_code error;
    std::filesystem::create_directories(spec.log_dir, error);
    if (error) throw_not_made(spec.log_dir, error.value());
  }
  ChildPlan plan;
  plan.argv = spec.argv;
  if (spec.argv.empty()) plan.function = [&spec] { return record(spec.function, spec.env); };
  plan.environment = worker_environment(spec.env, context_.job_tokens);
  plan.keep = context_.keep;
  plan.close = {context_.reaper.descriptor()};

  UniqueFd child_ends[2];
  const auto capture = [&](std::optional<LogPump>& pump, UniqueFd& child_end, Streams stream,
                           const StreamPlan& streams, LogPump::Targets targets) {
    auto [read_end, write_end] = open_pipe();
    child_end = std::move(write_end);
    pump.emplace(context_.loop, source_of(spec, stream, streams), std::move(read_end),
                 std::move(targets), buffer_);
    ++worker.open_pumps;
    return child_end.get();
  };
  if (!spec.out.inherit)
    plan.out = capture(worker.out, child_ends[0], Streams::out, spec.out,
                       targets_of(context_, spec.out, spec, "stdout.log"));
  if (!spec.err.inherit) {
    auto targets = targets_of(context_, spec.err, spec, "stderr.log");
    targets.tail = &worker.tail;
    plan.err = capture(worker.err, child_ends[1], Streams::err, spec.err, std::move(targets));
  }

  Child child = spawn_child(plan, context_.signals, context_.limit);
  worker.pid = child.pid;
  context_.reaper.started(child.pid);
  ++running_;
  ++not_gone_;
  worker.process = std::make_unique<Process>(
      context_.loop, std::move(child),
      Process::Handlers{[this, &worker](ExitStatus status) { on_exit(worker, status); },
                        [this, &worker] { on_left_behind(worker); },
                        [this, &worker] { on_process_gone(worker); }});
}

void WorkerGroup::on_exit(Worker& worker, ExitStatus status) {
  worker.status = status;
  worker.after = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - started_);
  worker.by_itself = !stopping_;
  --running_;
  handlers_.exited(worker.spec.env.local_rank, status);
}

void WorkerGroup::on_left_behind(const Worker& worker) {
  const auto leftovers = worker.process->leftovers();
  if (leftovers.empty()) return;  // they have ended meanwhile
  const bool one = leftovers.size() == 1;
  context_.console.say(fmt::format("rank {} left {} process{} behind ({}); ending {}",
                                   worker.spec.env.rank, leftovers.size(), one ? "" : "es",
                                   list_of(leftovers), one ? "it" : "them"));
}

void WorkerGroup::on_process_gone(Worker& worker) {
  context_.reaper.ended(worker.pid);
  ++worker.open_pumps;  // until both have been told
  if (worker.out) worker.out->drain(kDrainLimit, [this, &worker] { on_drained(worker); });
  if (worker.err) worker.err->drain(kDrainLimit, [this, &worker] { on_drained(worker); });
  on_drained(worker);
}

void WorkerGroup::on_drained(Worker& worker) {
  if (--worker.open_pumps == 0 && --not_gone_ == 0) handlers_.gone();
}

std::string WorkerGroup::describe_running() const {
  std::string text;
  for (const auto& worker : workers_)
    if (!worker->status)
      text += fmt::format("{}rank {} (pid {})", text.empty() ? "" : ", ", worker->spec.env.rank,
                          worker->pid);
  return text;
}

std::vector<std::string> WorkerGroup::describe_leftovers() const {
  std::vector<std::string> texts;
  for (const auto& worker : workers_) {
    const auto leftovers = worker->process->leftovers();
    const std::size_t n = leftovers.size();
    if (n == 0) continue;
    texts.push_back(fmt::format("{} that rank {} left behind ({})",
                                n == 1 ? "a process" : fmt::format("{} processes", n),
                                worker->spec.env.rank, list_of(leftovers)));
  }
  return texts;
}

void WorkerGroup::stop(int signal) {
  stopping_ = true;
  for (const auto& worker : workers_) worker->process->stop(signal);
}

void WorkerGroup::kill() {
  for (const auto& worker : workers_) worker->process->kill();
}

void WorkerGroup::signal_all(int signal) {
  for (const auto& worker : workers_) worker->process->signal_all(signal);
}

void WorkerGroup::relay(int signal) {
  for (const auto& worker : workers_) worker->process->signal_worker(signal);
}

void WorkerGroup::resume_output() {
  for (const auto& worker : workers_) {
    if (worker->out) worker->out->resume();
    if (worker->err) worker->err->resume();
  }
}

std::optional<int> WorkerGroup::culprit(int local_rank) const {
  const auto rank = parse_error_record(error_record(local_rank)).culprit;
  for (const auto& worker : workers_)
    if (rank == worker->spec.env.rank) return worker->spec.env.local_rank;
  return std::nullopt;
}

RankFailure WorkerGroup::describe(int local_rank) const {
  const Worker& worker = *workers_.at(static_cast<std::size_t>(local_rank));
  const ErrorRecord record = parse_error_record(worker.error_file.read());
  RankFailure failure;
  failure.rank = worker.spec.env.rank;
  failure.local_rank = local_rank;
  failure.pid = worker.pid;
  failure.attempt = worker.spec.env.restart_count;
  failure.status = worker.status.value_or(ExitStatus{});
  failure.after = worker.after;
  failure.exception_type = record.type;
  failure.exception_text = record.text;
  failure.culprit = record.culprit;
  for (const auto& other : workers_)
    if (record.culprit == other->spec.env.rank && other->by_itself && other->status->ok())
      failure.culprit_ended_well_after = other->after;
  failure.stderr_tail = worker.tail.last_lines(kTailLines, kTailBytes);
  if (worker.spec.err.file) failure.stderr_path = worker.spec.log_dir / "stderr.log";
  return failure;
}

std::string WorkerGroup::error_record(int local_rank) const {
  return workers_.at(static_cast<std::size_t>(local_rank))->error_file.read();
}

}  // namespace ddprun
