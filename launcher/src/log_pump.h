// SPDX-License-Identifier: MIT
// Reads one stream of one worker and hands it to file, tail and console.
#pragma once

#include <chrono>
#include <optional>
#include <span>

#include "console.h"
#include "line_splitter.h"
#include "log_sink.h"
#include "loop.h"

namespace ddprun {

/// Memory: at most 64 KiB of an unfinished line and 128 KiB of tail, and only when there is need.
/// A line that is not finished is shown after half a second without more of it.
/// Threads: the loop's.
class LogPump {
 public:
  struct Targets {
    std::optional<LogFile> file;
    Console* console = nullptr;  // null: not shown
    LogTail* tail = nullptr;     // null: not kept
  };

  /// `buffer`: where all pumps of a loop read into.
  LogPump(Loop& loop, LogSource source, UniqueFd pipe, Targets targets, std::span<char> buffer);
  LogPump(const LogPump&) = delete;
  LogPump& operator=(const LogPump&) = delete;

  /// The worker has ended: takes all that it wrote, waits up to `limit` for the end of file (a
  /// descendant that escaped may hold the pipe), then calls `done`.
  void drain(std::chrono::milliseconds limit, Loop::Callback done);
  /// The console has room again.
  void resume();

 private:
  void on_readable();
  bool read_once();
  void take(std::string_view bytes);
  void show(std::string_view bytes);
  void flush_idle();
  void close();

  Loop& loop_;
  LogSource source_;
  UniqueFd pipe_;
  Targets targets_;
  std::span<char> buffer_;
  LineSplitter splitter_;
  std::chrono::steady_clock::time_point last_;  // when the last bytes came
  Loop::Callback done_;
  Loop::Watch readable_;
  Loop::Watch idle_;
  Loop::Watch limit_;
};

}  // namespace ddprun
