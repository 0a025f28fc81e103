// SPDX-License-Identifier: MIT
// Where the output of ranks goes: the seam, and the two sinks that take bytes as they are.
#pragma once

#include <ddprun/launch.h>

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "line_splitter.h"

namespace ddprun {

/// One stream of one rank.
struct LogSource {
  int rank = 0;
  Streams stream = Streams::out;
  std::string tag;  // before each line; empty: none

  bool operator==(const LogSource& other) const {
    return rank == other.rank && stream == other.stream;
  }
};

class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void write(const LogSource& source, std::string_view text, LineEnd end) = 0;
};

/// Why a log file or directory could not be made, from errno.
/// Throws: StartError (75) when the machine has no room or no descriptors left, else UsageError.
[[noreturn]] void throw_not_made(const std::filesystem::path& path, int error);

/// A log file, byte for byte what the worker wrote. When it cannot be written any more it warns
/// once, with path and cause, and takes nothing from then on: a full disk stops no worker.
class LogFile {
 public:
  using Warn = std::function<void(std::string_view)>;

  /// Creates the file, mode 0600.
  /// Throws: as throw_not_made.
  LogFile(std::filesystem::path path, Warn warn);
  void append(std::string_view bytes);

 private:
  std::filesystem::path path_;
  UniqueFd fd_;
  Warn warn_;
};

/// The last bytes of a stream, for the report of a failure.
class LogTail {
 public:
  static constexpr std::size_t kKept = 64 * 1024;

  void append(std::string_view bytes);
  /// The last lines, at most `lines` of them and `bytes` bytes.
  std::string last_lines(int lines, std::size_t bytes) const;

 private:
  std::string bytes_;  // up to twice kKept, so that dropping its front is rare
};

}  // namespace ddprun
