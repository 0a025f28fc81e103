// SPDX-License-Identifier: MIT
// The end of a worker and of its session; see process.h.
#include "process.h"

#include <cerrno>
#include <csignal>
#include <utility>

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process_table.h"

namespace ddprun {
namespace {

constexpr std::chrono::seconds kLeftoverGrace{2};

ExitStatus decode(const siginfo_t& info) {
  return {.signaled = info.si_code != CLD_EXITED,
          .value = info.si_status,
          .core_dumped = info.si_code == CLD_DUMPED};
}

}  // namespace

Process::Process(Loop& loop, Child child, Handlers handlers)
    : loop_(loop),
      child_(std::move(child)),
      handlers_(std::move(handlers)),
      watch_(loop.when_readable(child_.pidfd.get(), [this] { on_exit(); })) {}

Process::~Process() {
  if (reaped_) return;
  signal_session(child_.pid, {SIGKILL});
  reap();
}

void Process::stop(int signal) {
  if (stop_signal_ == 0) stop_signal_ = signal;
  if (!reaped_) signal_session(child_.pid, {signal, SIGCONT});
}

void Process::kill() {
  killing_ = true;
  signal_all(SIGKILL);
  if (exited_) check_session();
}

void Process::signal_all(int signal) {
  if (!reaped_) signal_session(child_.pid, {signal});
}

void Process::signal_worker(int signal) {
  if (!exited_) ::kill(child_.pid, signal);
}

void Process::on_exit() {
  siginfo_t info = {};
  const auto id = static_cast<id_t>(child_.pid);
  if (::waitid(P_PID, id, &info, WEXITED | WNOWAIT | WNOHANG) != 0 || info.si_pid == 0) return;
  watch_.reset();
  exited_ = true;
  handlers_.exited(decode(info));
  if (reaped_) return;  // the handler killed it
  check_session();
  if (reaped_ || killing_) return;
  if (stop_signal_ != 0) return end_deaf_members();
  handlers_.left_behind();
  signal_session(child_.pid, {SIGTERM, SIGCONT});
  watch_ = loop_.after(kLeftoverGrace, [this] { kill(); });
}

/// Watches what is left, without a timer: the end of any member leads back here.
void Process::check_session() {
  if (reaped_) return;
  members_.clear();
  ProcessTable table;
  while (const pid_t pid = table.next()) {
    if (::getsid(pid) != child_.pid || !is_alive(pid)) continue;
    UniqueFd pidfd = open_pidfd(pid);
    if (!pidfd || ::getsid(pid) != child_.pid) continue;  // the number has changed hands
    if (killing_) ::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0);
    auto watch = loop_.when_readable(pidfd.get(), [this] { check_session(); });
    members_.push_back({pid, std::move(pidfd), std::move(watch)});
  }
  if (!members_.empty()) return;
  watch_.reset();
  reap();
  handlers_.gone();
}

void Process::end_deaf_members() {
  if (stop_signal_ == SIGTERM) return;
  for (const Member& member : members_) {
    if (!ignores(member.pid, stop_signal_)) continue;
    for (const int signal : {SIGTERM, SIGCONT})
      ::syscall(SYS_pidfd_send_signal, member.pidfd.get(), signal, nullptr, 0);
  }
}

std::vector<Leftover> Process::leftovers() const {
  std::vector<Leftover> leftovers;
  for (const Member& member : members_)
    if (is_alive(member.pid)) leftovers.push_back({member.pid, process_name(member.pid)});
  return leftovers;
}

void Process::reap() {
  reaped_ = true;
  while (::waitpid(child_.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace ddprun
