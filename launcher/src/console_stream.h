// SPDX-License-Identifier: MIT
// One of the launcher's own output descriptors, written without ever waiting for its reader.
#pragma once

#include <ddprun/deadline.h>

#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "loop.h"

namespace ddprun {

/// What happens when the reader is
///  - slow: the bytes wait here; over 256 KiB `congested()` asks the caller to bring no more, so a
///    worker's write may wait as it would without a launcher between
///  - stuck (congested, and nothing taken for 5 s): `lost()` tells the caller to leave lines out,
///    until all that waits has been taken
///  - gone, or the disk full: `lost()` for good
/// Pipes and terminals are opened anew, because O_NONBLOCK on the inherited descriptor would change
/// the shell's as well; one that the system does not let us open is written as it is and may make
/// the launcher wait. A socket is written with MSG_DONTWAIT; a file does not wait.
class ConsoleStream {
 public:
  static constexpr std::size_t kHighWater = 256 * 1024;

  /// `changed` is called when congested() or lost() may have become another.
  ConsoleStream(Loop& loop, int fd, Loop::Callback changed);

  void append(std::string_view bytes) { waiting_ += bytes; }
  /// Writes what the reader takes now; the rest follows by itself.
  void flush();
  bool congested() const { return !lost() && waiting_.size() > kHighWater; }
  bool lost() const { return stuck_ || error_ != 0; }
  /// errno when it was given up for good, else 0.
  int error() const { return error_; }
  /// Writes the rest. Blocks: until it is taken or `deadline`.
  void finish(Deadline deadline);

 private:
  void on_writable();
  bool write_some();
  void watch_patience();

  Loop& loop_;
  int fd_;
  UniqueFd own_;  // the same file, opened anew
  bool socket_ = false;
  bool stuck_ = false;
  int error_ = 0;
  bool reported_ = false;  // the error, to changed_
  std::string waiting_;
  Loop::Callback changed_;
  Loop::Watch writable_;
  Loop::Watch patience_;
};

}  // namespace ddprun
