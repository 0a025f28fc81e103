// SPDX-License-Identifier: MIT
// A program under test: started with pipes, read while it runs, waited for with a deadline.
#pragma once

#include <ddprun/deadline.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace ddprun::test {

/// How many times `what` occurs.
inline std::size_t count(std::string_view text, std::string_view what) {
  std::size_t n = 0;
  for (auto at = text.find(what); at != std::string_view::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

inline std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const auto end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

struct ProgramOptions {
  int out = -1;             // instead of a pipe
  int err = -1;             // instead of a pipe
  bool ignore_hup = false;  // as nohup
};

class Program {
 public:
  explicit Program(const std::vector<std::string>& argv, const ProgramOptions& options = {}) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    redirect(actions, options.out, STDOUT_FILENO, streams_[0].fd);
    redirect(actions, options.err, STDERR_FILENO, streams_[1].fd);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t defaults;
    sigfillset(&defaults);  // whatever runs the tests may ignore INT or QUIT
    if (options.ignore_hup) sigdelset(&defaults, SIGHUP);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    std::vector<char*> words;
    for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    const auto old = options.ignore_hup ? std::signal(SIGHUP, SIG_IGN) : SIG_DFL;
    const int error = posix_spawn(&pid_, words[0], &actions, &attributes, words.data(), environ);
    if (options.ignore_hup) std::signal(SIGHUP, old);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    ends_.clear();
    if (error != 0) throw std::runtime_error("cannot start " + argv[0]);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  int pid() const { return pid_; }
  void kill(int signal) const { ::kill(pid_, signal); }
  const std::string& out() const { return streams_[0].text; }
  const std::string& err() const { return streams_[1].text; }
  void stop_reading() {
    for (Stream& stream : streams_) stream.fd.reset();
  }

  /// Reads until `text` has come `times` times on stdout or stderr.
  bool wait_for(std::string_view text, std::size_t times = 1,
                std::chrono::seconds limit = std::chrono::seconds(20)) {
    const auto deadline = Deadline::after(limit);
    while (count(out(), text) + count(err(), text) < times)
      if (!read_more(deadline)) return count(out(), text) + count(err(), text) >= times;
    return true;
  }

  /// The same on stderr alone: stdout stays unread.
  bool wait_for_err(std::string_view text, std::size_t times) {
    UniqueFd unread = std::move(streams_[0].fd);
    const auto deadline = Deadline::after(std::chrono::seconds(20));
    while (count(err(), text) < times && read_more(deadline)) {
    }
    streams_[0].fd = std::move(unread);
    return count(err(), text) >= times;
  }

  /// Reads to the end of both streams, then reaps; the shell's number for how it ended.
  /// Throws: std::runtime_error with what it said when it does not end.
  int wait(std::chrono::seconds limit = std::chrono::seconds(30)) {
    const auto deadline = Deadline::after(limit);
    while (read_more(deadline)) {
    }
    const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
    pollfd ended = {pidfd.get(), POLLIN, 0};
    if (::poll(&ended, 1, static_cast<int>(deadline.remaining().count())) != 1)
      throw std::runtime_error("it does not end. stdout: " + out() + "\nstderr: " + err());
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  struct Stream {
    UniqueFd fd;
    std::string text;
  };

  void redirect(posix_spawn_file_actions_t& actions, int given, int target, UniqueFd& read_end) {
    int from = given;
    if (given < 0) {
      int ends[2];
      if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
      read_end.reset(ends[0]);
      ends_.emplace_back(ends[1]);
      from = ends[1];
    }
    posix_spawn_file_actions_adddup2(&actions, from, target);
  }

  /// False at the end of both streams, or when the deadline has passed.
  bool read_more(Deadline deadline) {
    std::array<pollfd, 2> fds = {pollfd{streams_[0].fd.get(), POLLIN, 0},
                                 pollfd{streams_[1].fd.get(), POLLIN, 0}};
    if (fds[0].fd < 0 && fds[1].fd < 0) return false;
    if (::poll(fds.data(), fds.size(), static_cast<int>(deadline.remaining().count())) <= 0)
      return false;
    std::array<char, 65536> buffer;
    for (std::size_t i = 0; i < fds.size(); ++i) {
      if (fds[i].revents == 0) continue;
      const ssize_t n = ::read(fds[i].fd, buffer.data(), buffer.size());
      if (n <= 0) streams_[i].fd.reset();
      if (n > 0) streams_[i].text.append(buffer.data(), static_cast<std::size_t>(n));
    }
    return true;
  }

  pid_t pid_ = -1;
  std::array<Stream, 2> streams_;
  std::vector<UniqueFd> ends_;
};

}  // namespace ddprun::test
