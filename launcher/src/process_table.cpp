// SPDX-License-Identifier: MIT
// Reads /proc with plain system calls; see process_table.h. Formats: proc(5).
#include "process_table.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstring>

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ddprun {
namespace {

constexpr int kFieldsAfterName = 18;  // state(3) .. num_threads(20)

/// "/proc/<pid>/<name>", without a formatter that might allocate.
struct ProcPath {
  ProcPath(pid_t pid, std::string_view name) {
    char* at = std::copy_n("/proc/", 6, text);
    at = std::to_chars(at, at + 12, pid).ptr;
    *at++ = '/';
    at = std::copy(name.begin(), name.end(), at);
    *at = '\0';
  }
  char text[48];
};

UniqueFd open_proc(pid_t pid, std::string_view name) {
  return UniqueFd(::open(ProcPath(pid, name).text, O_RDONLY | O_CLOEXEC));
}

/// The fields after "pid (name) "; the name may hold anything, also ") ".
std::optional<ProcessInfo> parse_stat(pid_t pid, std::string_view stat) {
  const auto name_end = stat.rfind(')');
  if (name_end == std::string_view::npos || name_end + 3 >= stat.size()) return std::nullopt;
  const char state = stat[name_end + 2];
  long fields[kFieldsAfterName] = {};
  const char* at = stat.data() + name_end + 3;
  const char* const end = stat.data() + stat.size();
  for (int i = 1; i < kFieldsAfterName && at < end; ++i)
    at = std::from_chars(at + 1, end, fields[i]).ptr;
  ProcessInfo info;
  info.pid = pid;
  info.group = static_cast<pid_t>(fields[2]);
  info.session = static_cast<pid_t>(fields[3]);
  // A first thread that ended while others run looks like a zombie but for the thread count.
  info.dead = (state == 'Z' && fields[17] <= 1) || state == 'X';
  return info;
}

}  // namespace

std::optional<ProcessInfo> find_process(pid_t pid) {
  const UniqueFd file = open_proc(pid, "stat");
  if (!file) return std::nullopt;
  std::array<char, 1024> text;
  const ssize_t n = ::read(file.get(), text.data(), text.size());
  if (n <= 0) return std::nullopt;
  return parse_stat(pid, {text.data(), static_cast<std::size_t>(n)});
}

ProcessTable::ProcessTable() : directory_(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {}

pid_t ProcessTable::next_pid() {
  for (;;) {
    if (at_ >= filled_) {
      const long n = ::syscall(SYS_getdents64, directory_.get(), entries_.data(), entries_.size());
      if (n <= 0) return 0;
      filled_ = static_cast<std::size_t>(n);
      at_ = 0;
    }
    const auto* entry = reinterpret_cast<const dirent64*>(entries_.data() + at_);
    at_ += entry->d_reclen;
    pid_t pid = 0;
    const char* name = entry->d_name;
    if (std::from_chars(name, name + std::strlen(name), pid).ec == std::errc()) return pid;
  }
}

std::optional<ProcessInfo> ProcessTable::next() {
  while (const pid_t pid = next_pid())
    if (auto info = find_process(pid)) return info;
  return std::nullopt;
}

bool environment_contains(pid_t pid, std::string_view text) {
  const UniqueFd file = open_proc(pid, "environ");
  if (!file) return false;
  std::array<char, 16384> buffer;
  std::size_t kept = 0;  // the end of the last piece, in case `text` lies across two
  for (;;) {
    const ssize_t n = ::read(file.get(), buffer.data() + kept, buffer.size() - kept);
    if (n <= 0) return false;
    const std::string_view seen(buffer.data(), kept + static_cast<std::size_t>(n));
    if (seen.find(text) != std::string_view::npos) return true;
    kept = std::min(seen.size(), text.size() - 1);
    std::memmove(buffer.data(), seen.data() + seen.size() - kept, kept);
  }
}

UniqueFd open_pidfd(pid_t pid) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));  // close-on-exec
}

void signal_session(pid_t session, std::initializer_list<int> signals) {
  for (const int signal : signals) ::kill(-session, signal);  // the leader's group, at one stroke
  ProcessTable table;
  while (const auto process = table.next())
    if (process->session == session && process->group != session && !process->dead)
      for (const int signal : signals) ::kill(process->pid, signal);
}

}  // namespace ddprun
