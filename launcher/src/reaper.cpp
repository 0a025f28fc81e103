// SPDX-License-Identifier: MIT
// The reaper's process; see reaper.h. After the fork only async-signal-safe calls: the caller of
// spawn() may have threads.
#include "reaper.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <span>
#include <string_view>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process_table.h"
#include "signal_state.h"
#include "spawn_child.h"

namespace ddprun {
namespace {

constexpr int kSweepLimitMs = 2000;
constexpr std::size_t kMaxSessions = 4096;  // more are still found by their environment

long now_ms() {
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

void close_all_but_stdin() {
  if (::syscall(SYS_close_range, 1U, ~0U, 0U) == 0) return;
  const long limit = ::sysconf(_SC_OPEN_MAX);  // before Linux 5.9
  for (int fd = 1; fd < limit; ++fd) ::close(fd);
}

/// The sessions that live, as the launcher last said.
class Sessions {
 public:
  void apply(pid_t message) {
    const auto listed = live();
    if (message > 0 && count_ < sessions_.size()) {
      sessions_[count_++] = message;
    } else if (const auto at = std::find(listed.begin(), listed.end(), -message);
               at != listed.end()) {
      *at = sessions_[--count_];
    }
  }
  bool contain(pid_t session) {
    const auto listed = live();
    return std::find(listed.begin(), listed.end(), session) != listed.end();
  }

 private:
  std::span<pid_t> live() { return std::span(sessions_).first(count_); }
  std::array<pid_t, kMaxSessions> sessions_;
  std::size_t count_ = 0;
};

/// Kills what belongs to the job; the pidfd of one process killed, empty when there was none.
UniqueFd kill_job(Sessions& sessions, std::string_view variable) {
  UniqueFd killed;
  ProcessTable table;
  while (const pid_t pid = table.next()) {
    const pid_t session = ::getsid(pid);
    if (session <= 0 || pid == ::getpid()) continue;  // 0: the kernel's threads
    if (!sessions.contain(session) && !environment_contains(pid, variable)) continue;
    if (!is_alive(pid)) continue;
    UniqueFd pidfd = open_pidfd(pid);
    if (pidfd && ::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0) == 0)
      killed = std::move(pidfd);
  }
  return killed;
}

[[noreturn]] void run_reaper(int pipe, std::string_view variable) {
  ::setsid();
  ::prctl(PR_SET_NAME, "ddprun-reaper");
  ::dup2(pipe, STDIN_FILENO);
  close_all_but_stdin();
  if (::chdir("/") != 0) ::_exit(0);  // hold no mount

  Sessions sessions;
  std::array<pid_t, 256> messages;
  for (;;) {
    const ssize_t n = ::read(STDIN_FILENO, messages.data(), sizeof(messages));
    if (n == 0) break;
    if (n < 0 && errno != EINTR) break;
    for (std::size_t i = 0; n > 0 && i < static_cast<std::size_t>(n) / sizeof(pid_t); ++i)
      sessions.apply(messages[i]);
  }

  const long limit = now_ms() + kSweepLimitMs;
  while (const UniqueFd killed = kill_job(sessions, variable)) {
    const long left = limit - now_ms();
    if (left <= 0) break;
    pollfd gone = {killed.get(), POLLIN, 0};
    ::poll(&gone, 1, static_cast<int>(left));
  }
  ::_exit(0);
}

}  // namespace

Reaper::Reaper(const std::string& job_token) {
  const std::string variable = "DDPRUN_JOB=" + job_token;
  auto [read_end, write_end] = open_pipe();
  const BlockedSignals blocked;  // the reaper stays deaf to all but SIGKILL
  pid_ = ::fork();
  if (pid_ == 0) run_reaper(read_end.get(), variable);
  if (pid_ < 0) throw StartError::from_errno("fork the reaper", errno);
  pipe_ = std::move(write_end);
}

void Reaper::finish() {
  if (!pipe_) return;
  pipe_.reset();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Reaper::send(pid_t message) {
  // Fails only when somebody killed the reaper; the job itself does not need it.
  while (::write(pipe_.get(), &message, sizeof(message)) < 0 && errno == EINTR) {
  }
}

}  // namespace ddprun
