// SPDX-License-Identifier: MIT
// Bytes of a stream -> pieces to show: whole lines, and what cannot wait for its end. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace ddprun {

/// How a piece ends. carriage_return: a progress bar's update. none: the line goes on.
enum class LineEnd : std::uint8_t { none, newline, carriage_return };

/// Joining the pieces, each followed by its end, gives the bytes back, but for carriage returns
/// with nothing before them. A carriage return before a newline stays part of the line.
class LineSplitter {
 public:
  /// A line is held back up to this size; a longer one comes in pieces that end with `none`.
  static constexpr std::size_t kMaxHeld = 64 * 1024;
  using Emit = std::function<void(std::string_view text, LineEnd end)>;

  void feed(std::string_view bytes, const Emit& emit);
  /// Emits what is held back, as a line that goes on: nothing came for a while.
  void flush(const Emit& emit);
  /// Emits what is held back as a line: the stream has ended.
  void finish(const Emit& emit);
  bool holds_back() const { return !held_.empty(); }

 private:
  void hold(std::string_view text, const Emit& emit);
  void close_piece(std::string_view text, LineEnd end, const Emit& emit);

  std::string held_;    // the end of a line is not here yet
  bool begun_ = false;  // a piece of this line went out already
};

}  // namespace ddprun
