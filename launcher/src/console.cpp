// SPDX-License-Identifier: MIT
// Tags, open lines and what is left out; see console.h.
#include "console.h"

#include <cstring>
#include <utility>

#include <fmt/core.h>
#include <sys/stat.h>

namespace ddprun {
namespace {

constexpr std::size_t kFlushSize = 64 * 1024;

bool same_file(int a, int b) {
  struct stat left = {};
  struct stat right = {};
  return ::fstat(a, &left) == 0 && ::fstat(b, &right) == 0 && left.st_dev == right.st_dev &&
         left.st_ino == right.st_ino && left.st_rdev == right.st_rdev;
}

}  // namespace

Console::Console(Loop& loop, int out_fd, int err_fd)
    : out_(loop, out_fd, [this] { on_changed(out_); }),
      err_(loop, err_fd, [this] { on_changed(err_); }),
      same_(same_file(out_fd, err_fd)) {}

Console::Channel& Console::channel(Streams stream) {
  return stream == Streams::out && !same_ ? out_ : err_;
}

void Console::Channel::close_line() {
  if (line_of) stream.append("\n");
  line_of.reset();
}

void Console::write(const LogSource& source, std::string_view text, LineEnd end) {
  Channel& to = channel(source.stream);
  if (to.stream.lost()) {
    ++to.left_out;
    return;
  }
  const bool continues = to.line_of == source;
  if (!continues) to.close_line();
  const bool only_ends_a_bar = continues && to.last_end == LineEnd::carriage_return && text.empty();
  if (!only_ends_a_bar && !(continues && to.last_end == LineEnd::none))
    to.stream.append(source.tag);
  to.stream.append(text);
  to.last_end = end;
  if (end == LineEnd::newline) {
    to.stream.append("\n");
    to.line_of.reset();
  } else {
    if (end == LineEnd::carriage_return) to.stream.append("\r");
    if (!continues) to.line_of = source;
  }
}

void Console::flush() {
  out_.stream.flush();
  err_.stream.flush();
}

void Console::say(std::string_view text) {
  write({.rank = -1, .stream = Streams::err, .tag = "[ddprun] "}, text, LineEnd::newline);
  flush();
}

void Console::print(std::string_view text) {
  if (err_.stream.lost()) return;
  err_.close_line();
  err_.stream.append(text);
  flush();
}

/// After a loss says once what is missing, where that can be read.
void Console::on_changed(Channel& changed) {
  const char* name = &changed == &out_ ? "stdout" : same_ ? "stdout and stderr" : "stderr";
  if (changed.stream.error() != 0 && !std::exchange(changed.warned, true)) {
    if (&changed == &out_)  // the other one can say it
      say(fmt::format("warning: {} takes nothing any more ({}); the ranks go on", name,
                      std::strerror(changed.stream.error())));
  } else if (!changed.stream.lost() && changed.left_out > 0) {
    changed.close_line();
    changed.stream.append(
        fmt::format("[ddprun] warning: nobody read {}; {} lines are left out here\n", name,
                    std::exchange(changed.left_out, 0)));
    changed.stream.flush();
  }
  if (room_) room_();
}

void Console::finish(Deadline deadline) {
  for (Channel* each : {&out_, &err_}) {
    each->close_line();
    each->stream.finish(deadline);
  }
}

}  // namespace ddprun
