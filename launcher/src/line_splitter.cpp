// SPDX-License-Identifier: MIT
// Splits at newlines and carriage returns; see line_splitter.h.
#include "line_splitter.h"

namespace ddprun {

void LineSplitter::feed(std::string_view bytes, const Emit& emit) {
  // Whether a carriage return that came last belongs to a newline is known only now.
  if (!bytes.empty() && held_.ends_with('\r') && bytes.front() != '\n') {
    held_.pop_back();
    close_piece({}, LineEnd::carriage_return, emit);
  }
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    std::string_view line = bytes.substr(0, newline);
    bytes.remove_prefix(newline == std::string_view::npos ? bytes.size() : newline + 1);
    for (auto at = line.find('\r'); at != std::string_view::npos && at + 1 < line.size();
         at = line.find('\r')) {
      close_piece(line.substr(0, at), LineEnd::carriage_return, emit);
      line.remove_prefix(at + 1);
    }
    if (newline == std::string_view::npos)
      hold(line, emit);
    else
      close_piece(line, LineEnd::newline, emit);
  }
}

void LineSplitter::flush(const Emit& emit) {
  if (held_.empty()) return;
  if (held_.back() == '\r') {
    held_.pop_back();
    close_piece({}, LineEnd::carriage_return, emit);
    return;
  }
  emit(held_, LineEnd::none);
  held_.clear();
  begun_ = true;
}

void LineSplitter::finish(const Emit& emit) {
  if (!held_.empty() || begun_) close_piece({}, LineEnd::newline, emit);
}

void LineSplitter::hold(std::string_view text, const Emit& emit) {
  if (held_.size() + text.size() > kMaxHeld) flush(emit);
  if (text.size() > kMaxHeld) {
    emit(text, LineEnd::none);
    begun_ = true;
  } else {
    held_ += text;
  }
}

void LineSplitter::close_piece(std::string_view text, LineEnd end, const Emit& emit) {
  const bool shows_nothing = end == LineEnd::carriage_return && text.empty() && held_.empty();
  if (held_.empty()) {
    if (!shows_nothing || begun_) emit(text, end);
  } else {
    held_ += text;
    emit(held_, end);
    held_.clear();
  }
  begun_ = false;
}

}  // namespace ddprun
