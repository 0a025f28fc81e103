// SPDX-License-Identifier: MIT
// fork and exec; see spawn_child.h. Everything that allocates is done before the fork; after it the
// child makes only async-signal-safe calls until it executes the program or calls the function.
#include "spawn_child.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <string_view>
#include <tuple>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/env.h"
#include "process_table.h"

namespace ddprun {
namespace {

constexpr int kExecLimitMs = 30'000;

/// A null-terminated array of pointers into `words`.
std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  result.reserve(words.size() + 1);
  for (const std::string& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

std::string search_path(const std::vector<std::string>& environment) {
  for (const std::string& variable : environment)
    if (variable.starts_with("PATH=")) return variable.substr(5);
  return "/bin:/usr/bin";
}

/// The files that execvp would try for a program's name, in order.
std::vector<std::string> candidates(const std::string& program, const std::string& path) {
  if (program.find('/') != std::string::npos || program.empty()) return {program};
  std::vector<std::string> files;
  for (std::size_t from = 0; from <= path.size();) {
    const std::size_t to = std::min(path.find(':', from), path.size());
    const std::string directory = path.substr(from, to - from);
    files.push_back(directory.empty() ? program : directory + "/" + program);
    from = to + 1;
  }
  return files;
}

/// Everything execve needs, ready before the fork.
struct ExecImage {
  explicit ExecImage(const ChildPlan& plan)
      : files(plan.argv.empty() ? std::vector<std::string>{}
                                : candidates(plan.argv[0], search_path(plan.environment))),
        argv(pointers(plan.argv)),
        shell_argv(argv),
        environment(pointers(plan.environment)) {
    if (!plan.argv.empty()) shell_argv.insert(shell_argv.begin(), const_cast<char*>("/bin/sh"));
  }

  std::vector<std::string> files;
  std::vector<char*> argv;
  mutable std::vector<char*> shell_argv;  // /bin/sh file args...: for a script without "#!"
  std::vector<char*> environment;
};

/// What must not be open in a child that calls a function. A number of `keep` may have become the
/// launcher's since: another thread closed it. So what would do harm is named; the rest of the
/// launcher's (its epoll, log files, pidfds) is useless there but harmless.
std::vector<int> descriptors_to_close(const ChildPlan& plan) {
  if (!plan.argv.empty()) return {};  // close-on-exec does it
  std::vector<int> close = open_descriptors();
  std::erase_if(close,
                [&](int fd) { return std::count(plan.keep.begin(), plan.keep.end(), fd) > 0; });
  close.insert(close.end(), {plan.out, plan.err});
  close.insert(close.end(), plan.close.begin(), plan.close.end());
  std::erase_if(close, [](int fd) { return fd <= STDERR_FILENO; });
  return close;
}

void become_worker(pid_t launcher, const ChildPlan& plan, const SignalState& found,
                   const DescriptorLimit& limit) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::raise(SIGKILL);  // it died before the line above
  if (plan.out >= 0) ::dup2(plan.out, STDOUT_FILENO);
  if (plan.err >= 0) ::dup2(plan.err, STDERR_FILENO);
  limit.restore();
  found.restore();
}

/// Returns errno. As execvp: the next file when one is not there, EACCES when one was not allowed.
int execute(const ExecImage& image) {
  int error = ENOENT;
  for (const std::string& file : image.files) {
    ::execve(file.c_str(), image.argv.data(), image.environment.data());
    if (errno == ENOEXEC) {
      image.shell_argv[1] = const_cast<char*>(file.c_str());
      ::execve("/bin/sh", image.shell_argv.data(), image.environment.data());
    }
    if (errno == EACCES) error = EACCES;
    if (errno != ENOENT && errno != ENOTDIR && errno != EACCES) return errno;
  }
  return error;
}

void flush_output() {
  std::cout.flush();
  std::fflush(stdout);  // not all streams: another thread may hold stdin's lock while it reads
  std::fflush(stderr);
}

[[noreturn]] void call_function(const ChildPlan& plan, const ExecImage& image,
                                const std::vector<int>& close) {
  for (const int fd : close) ::close(fd);
  ::environ = const_cast<char**>(image.environment.data());
  const int code = plan.function();
  flush_output();
  ::_exit(code >= 0 && code <= 255 ? code : 1);  // 256 would look like success
}

/// errno of a failed exec, 0 when the program runs; empty pipe at end of file says so.
int read_exec_error(int pipe) {
  pollfd ready = {pipe, POLLIN, 0};
  int polled = 0;
  while ((polled = ::poll(&ready, 1, kExecLimitMs)) < 0 && errno == EINTR) {
  }
  if (polled == 0) return ETIMEDOUT;
  int error = 0;
  while (::read(pipe, &error, sizeof(error)) < 0 && errno == EINTR) {
  }
  return error;
}

StartError exec_error(const ChildPlan& plan, const ExecImage& image, int error) {
  const std::string& program = plan.argv[0];
  struct stat status = {};
  const bool exists = image.files.size() == 1 && ::stat(program.c_str(), &status) == 0;
  if (error == ENOENT && exists)
    return {126, fmt::format("[launch] {}: the interpreter that its first line names was not found",
                             program)};
  if (error == ENOENT || error == ENOTDIR) {
    if (image.files.size() == 1 && program.find('/') != std::string::npos)
      return {127, fmt::format("[launch] {}: not found", program)};
    return {127, fmt::format("[launch] {}: not found in PATH ({}); for a file of this directory "
                             "write ./{}",
                             program, search_path(plan.environment), program)};
  }
  if (error == E2BIG)
    return {2, fmt::format("[launch] {}: arguments and environment are larger than the system "
                           "takes (E2BIG)",
                           program)};
  if (error == EAGAIN || error == ENOMEM || error == ETIMEDOUT || error == EMFILE ||
      error == ENFILE)
    return StartError::from_errno("execute " + program, error);
  return {126, fmt::format("[launch] {}: cannot be executed: {}", program, std::strerror(error))};
}

}  // namespace

StartError StartError::from_errno(const std::string& operation, int error) {
  const char* advice = "";
  if (error == EAGAIN) advice = "; see the limit of processes (ulimit -u, pids.max of the cgroup)";
  if (error == EMFILE || error == ENFILE) advice = "; see the limit of descriptors (ulimit -n)";
  return {75, fmt::format("[launch] {}: {}{}", operation, std::strerror(error), advice)};
}

std::pair<UniqueFd, UniqueFd> open_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw StartError::from_errno("open a pipe", errno);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::vector<int> open_descriptors() {
  std::vector<int> descriptors;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir("/proc/self/fd"), &::closedir);
  if (!directory) throw StartError::from_errno("list /proc/self/fd", errno);
  while (const dirent* entry = ::readdir(directory.get())) {
    const auto fd = parse_int(entry->d_name);
    if (fd && *fd != ::dirfd(directory.get())) descriptors.push_back(static_cast<int>(*fd));
  }
  return descriptors;
}

Child spawn_child(const ChildPlan& plan, const SignalState& found, const DescriptorLimit& limit) {
  const bool executes = !plan.argv.empty();
  const ExecImage image(plan);
  UniqueFd read_end;
  UniqueFd write_end;
  if (executes) std::tie(read_end, write_end) = open_pipe();
  const std::vector<int> close = descriptors_to_close(plan);
  if (!executes) flush_output();  // else the child would write what we have buffered, too
  const pid_t launcher = ::getpid();

  Child child;
  {
    const BlockedSignals blocked;  // no handler of the launcher runs in the child
    child.pid = ::fork();
    if (child.pid == 0) {
      become_worker(launcher, plan, found, limit);
      if (!executes) call_function(plan, image, close);
      const int error = execute(image);
      if (::write(write_end.get(), &error, sizeof(error)) < 0) ::_exit(126);
      ::_exit(127);
    }
  }
  if (child.pid < 0) throw StartError::from_errno("start a worker", errno);
  write_end.reset();
  child.pidfd = open_pidfd(child.pid);
  const int pidfd_error = child.pidfd ? 0 : errno;
  const int exec_errno = pidfd_error || !executes ? 0 : read_exec_error(read_end.get());
  if (pidfd_error == 0 && exec_errno == 0) return child;
  ::kill(child.pid, SIGKILL);
  ::waitpid(child.pid, nullptr, 0);
  if (pidfd_error) throw StartError::from_errno("watch a worker", pidfd_error);
  throw exec_error(plan, image, exec_errno);
}

}  // namespace ddprun
