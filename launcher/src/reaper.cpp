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

constexpr std::string_view kName = "ddprun-reaper";
constexpr pid_t kFinish = 0;  // as a message: the job is over
constexpr int kSweepLimitMs = 2000;
constexpr int kFinishLimitMs = 3000;
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

/// Kills what belongs to the job, but for reapers of jobs inside it, which end by themselves; the
/// pidfd of one process that is about to end, empty when there was none.
UniqueFd kill_job(Sessions& sessions, std::string_view job_token) {
  UniqueFd ending;
  ProcessTable table;
  while (const pid_t pid = table.next()) {
    const pid_t session = ::getsid(pid);
    if (session <= 0 || pid == ::getpid()) continue;  // 0: the kernel's threads
    if (!sessions.contain(session) && !environment_lists(pid, "DDPRUN_JOB=", job_token)) continue;
    if (!is_alive(pid)) continue;
    UniqueFd pidfd = open_pidfd(pid);
    const int signal = has_name(pid, kName) ? SIGCONT : SIGKILL;
    if (pidfd && ::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0) == 0)
      ending = std::move(pidfd);
  }
  return ending;
}

[[noreturn]] void run_reaper(int pipe, std::string_view job_token) {
  ::setsid();
  ::prctl(PR_SET_NAME, kName.data());
  ::dup2(pipe, STDIN_FILENO);
  close_all_but_stdin();
  if (::chdir("/") != 0) ::_exit(0);  // hold no mount

  Sessions sessions;
  std::array<pid_t, 256> messages;
  for (bool finished = false; !finished;) {
    const ssize_t n = ::read(STDIN_FILENO, messages.data(), sizeof(messages));
    if (n == 0) break;
    if (n < 0 && errno != EINTR) break;
    for (std::size_t i = 0; n > 0 && i < static_cast<std::size_t>(n) / sizeof(pid_t); ++i)
      if (messages[i] == kFinish)
        finished = true;
      else
        sessions.apply(messages[i]);
  }

  const long limit = now_ms() + kSweepLimitMs;
  while (const UniqueFd ending = kill_job(sessions, job_token)) {
    const long left = limit - now_ms();
    if (left <= 0) break;
    pollfd gone = {ending.get(), POLLIN, 0};
    ::poll(&gone, 1, static_cast<int>(left));
  }
  ::_exit(0);
}

}  // namespace

Reaper::Reaper(const std::string& job_token) {
  auto [read_end, write_end] = open_pipe();
  const BlockedSignals blocked;  // the reaper stays deaf to all but SIGKILL
  pid_ = ::fork();
  if (pid_ == 0) run_reaper(read_end.get(), job_token);
  if (pid_ < 0) throw StartError::from_errno("fork the reaper", errno);
  pidfd_ = open_pidfd(pid_);
  const int error = errno;
  pipe_ = std::move(write_end);
  if (pidfd_) return;
  finish();
  throw StartError::from_errno("watch the reaper", error);
}

void Reaper::finish() {
  if (!pipe_) return;
  send(kFinish);  // the end of the file may not come: another run of this process can hold the pipe
  pipe_.reset();
  ::kill(pid_, SIGCONT);  // whoever stopped it
  pollfd ended = {pidfd_.get(), POLLIN, 0};
  const long limit = now_ms() + kFinishLimitMs;
  while (::poll(&ended, 1, static_cast<int>(std::max(0L, limit - now_ms()))) < 0 &&
         errno == EINTR) {
  }
  ::kill(pid_, SIGKILL);  // a zombie takes no notice
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Reaper::send(pid_t message) {
  // Fails only when somebody killed the reaper; the job itself does not need it.
  while (::write(pipe_.get(), &message, sizeof(message)) < 0 && errno == EINTR) {
  }
}

}  // namespace ddprun
