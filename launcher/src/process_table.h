// SPDX-License-Identifier: MIT
// What /proc says about the processes of this machine. Allocates nothing (but for process_name) and
// takes no lock, so that a freshly forked process may use it.
#pragma once

#include <array>
#include <initializer_list>
#include <string>
#include <string_view>

#include <sys/types.h>

#include "base/unique_fd.h"

namespace ddprun {

/// Whether the process exists and runs; a zombie does not.
bool is_alive(pid_t pid);

/// Walks over all processes; one that starts or ends meanwhile may be missed. Numbers only: most
/// are told apart by their session (getsid), which costs a fiftieth of find_process.
class ProcessTable {
 public:
  ProcessTable();
  /// 0 after the last one.
  pid_t next();

 private:
  UniqueFd directory_;
  std::size_t at_ = 0;
  std::size_t filled_ = 0;
  alignas(8) std::array<char, 8192> entries_;
};

/// Whether the environment that `pid` was started with has the variable `name` ("NAME=") with
/// `item` in its list, "a:b:c"; false when it is not ours to read.
bool environment_lists(pid_t pid, std::string_view name, std::string_view item);

/// Whether this is the first 15 bytes of its program's name.
bool has_name(pid_t pid, std::string_view name);

/// Whether it ignores the signal: neither its default nor a handler.
bool ignores(pid_t pid, int signal);

/// The first 15 bytes of its program's name; "?" when it is gone.
std::string process_name(pid_t pid);

/// Refers to one process for good: a later process of the same number is not meant. Empty when
/// there is none.
UniqueFd open_pidfd(pid_t pid);

/// Sends these signals, in order, to every process of a session. Its leader must not be reaped yet,
/// else the number may be another's by now.
void signal_session(pid_t session, std::initializer_list<int> signals);

}  // namespace ddprun
