// SPDX-License-Identifier: MIT
// Reads /proc with plain system calls; see process_table.h. Formats: proc(5).
#include "process_table.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <span>

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ddprun {
namespace {

constexpr int kFieldsToThreads = 17;  // ppid(4) .. num_threads(20)

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

/// The first bytes of a file of /proc, as many as `buffer` takes.
std::string_view read_proc(pid_t pid, std::string_view name, std::span<char> buffer) {
  const UniqueFd file = open_proc(pid, name);
  const ssize_t n = file ? ::read(file.get(), buffer.data(), buffer.size()) : 0;
  return {buffer.data(), n > 0 ? static_cast<std::size_t>(n) : 0};
}

}  // namespace

bool is_alive(pid_t pid) {
  std::array<char, 1024> text;
  const std::string_view stat = read_proc(pid, "stat", text);
  const auto name_end = stat.rfind(')');  // the name may hold anything, also ") "
  if (name_end == std::string_view::npos || name_end + 2 >= stat.size()) return false;
  const char state = stat[name_end + 2];
  if (state != 'Z') return state != 'X';
  // A first thread that ended while others run looks like a zombie but for the thread count.
  const char* at = stat.data() + name_end + 3;
  long field = 0;
  for (int i = 0; i < kFieldsToThreads; ++i)
    at = std::from_chars(at + 1, stat.data() + stat.size(), field).ptr;
  return field > 1;
}

ProcessTable::ProcessTable() : directory_(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {}

pid_t ProcessTable::next() {
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

bool environment_lists(pid_t pid, std::string_view name, std::string_view item) {
  constexpr std::size_t kDiffers = std::string_view::npos;
  const UniqueFd file = open_proc(pid, "environ");
  std::array<char, 16384> buffer;
  bool in_value = false;
  std::size_t same = 0;  // bytes of the name, or of the item, that agree so far
  const auto advance = [&same](std::string_view expected, char c) {
    same = same < expected.size() && expected[same] == c ? same + 1 : kDiffers;
  };
  for (;;) {
    const ssize_t n = file ? ::read(file.get(), buffer.data(), buffer.size()) : 0;
    if (n <= 0) return in_value && same == item.size();  // the last one may lack its end
    for (const char c : std::span(buffer).first(static_cast<std::size_t>(n))) {
      if (in_value && (c == '\0' || c == ':')) {
        if (same == item.size()) return true;
        in_value = c == ':';
        same = 0;
      } else if (c == '\0') {
        same = 0;
      } else {
        advance(in_value ? item : name, c);
        if (!in_value && same == name.size()) in_value = true, same = 0;
      }
    }
  }
}

bool ignores(pid_t pid, int signal) {
  constexpr std::string_view kLabel = "\nSigIgn:\t";
  std::array<char, 4096> text;
  const std::string_view status = read_proc(pid, "status", text);
  const auto at = status.find(kLabel);
  if (at == std::string_view::npos) return false;
  std::uint64_t mask = 0;
  std::from_chars(status.data() + at + kLabel.size(), status.data() + status.size(), mask, 16);
  return (mask >> (signal - 1) & 1U) != 0;
}

bool has_name(pid_t pid, std::string_view name) {
  std::array<char, 64> text;
  const std::string_view comm = read_proc(pid, "comm", text);
  return comm.substr(0, comm.find('\n')) == name;
}

std::string process_name(pid_t pid) {
  std::array<char, 64> text;
  std::string_view name = read_proc(pid, "comm", text);
  name = name.substr(0, name.find('\n'));
  return std::string(name.empty() ? "?" : name);
}

UniqueFd open_pidfd(pid_t pid) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));  // close-on-exec
}

void signal_session(pid_t session, std::initializer_list<int> signals) {
  for (const int signal : signals) ::kill(-session, signal);  // the leader's group, at one stroke
  ProcessTable table;
  while (const pid_t pid = table.next())
    if (::getsid(pid) == session && ::getpgid(pid) != session)
      for (const int signal : signals) ::kill(pid, signal);
}

}  // namespace ddprun
