// SPDX-License-Identifier: MIT
// The launcher's stdout and stderr, shared by all ranks: lines stay whole and carry their rank.
#pragma once

#include <ddprun/deadline.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "console_stream.h"
#include "log_sink.h"
#include "loop.h"

namespace ddprun {

/// Every displayed line begins with one tag and holds one rank's bytes. A line that goes on is
/// continued without a second tag as long as nobody else wrote; when somebody does, it is broken
/// there, and its rest begins a line of its own. When stdout and stderr are the same terminal, pipe
/// or file, both are written in the order of arrival through the one.
class Console final : public LogSink {
 public:
  Console(Loop& loop, int out_fd, int err_fd);

  void write(const LogSource& source, std::string_view text, LineEnd end) override;
  /// Passes on what was written since the last call.
  void flush();
  /// A line of the launcher's own, on stderr: "[ddprun] text".
  void say(std::string_view text);
  /// Text of the launcher's own, on stderr, as it is.
  void print(std::string_view text);
  /// `room` is called when streams that waited for congested() may go on; null: nobody asks.
  void on_room(Loop::Callback room) { room_ = std::move(room); }
  /// The caller should bring nothing for this stream until the callback of on_room.
  bool congested(Streams stream) { return channel(stream).stream.congested(); }
  /// Ends an open line and writes what waits. Blocks: until it is taken or `deadline`.
  void finish(Deadline deadline);

 private:
  struct Channel {
    Channel(Loop& loop, int fd, Loop::Callback changed) : stream(loop, fd, std::move(changed)) {}
    void close_line();

    ConsoleStream stream;
    std::optional<LogSource> line_of;  // whose line is open
    LineEnd last_end = LineEnd::newline;
    std::uint64_t left_out = 0;
    bool warned = false;
  };
  Channel& channel(Streams stream);
  void on_changed(Channel& channel);

  Channel out_;
  Channel err_;
  bool same_;  // stdout and stderr are one file
  Loop::Callback room_;
};

}  // namespace ddprun
