// SPDX-License-Identifier: MIT
// Writes that do not wait; see console_stream.h.
#include "console_stream.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ddprun {
namespace {

constexpr std::chrono::seconds kPatience{5};

UniqueFd reopen(int fd) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  return UniqueFd(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
}

}  // namespace

ConsoleStream::ConsoleStream(Loop& loop, int fd, Loop::Callback changed)
    : loop_(loop), fd_(fd), changed_(std::move(changed)) {
  struct stat status = {};
  ::fstat(fd, &status);
  socket_ = S_ISSOCK(status.st_mode);
  // Not a file: opened anew it would lose its offset and O_APPEND.
  if (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode)) own_ = reopen(fd);
  if (own_) fd_ = own_.get();
}

void ConsoleStream::flush() {
  if (!writable_ && !write_some()) writable_ = loop_.when_writable(fd_, [this] { on_writable(); });
  watch_patience();
}

/// True when nothing waits any more, or never will again.
bool ConsoleStream::write_some() {
  std::size_t done = 0;
  while (done < waiting_.size() && error_ == 0) {
    const char* at = waiting_.data() + done;
    const std::size_t left = waiting_.size() - done;
    const ssize_t n =
        socket_ ? ::send(fd_, at, left, MSG_DONTWAIT | MSG_NOSIGNAL) : ::write(fd_, at, left);
    if (n >= 0)
      done += static_cast<std::size_t>(n);
    else if (errno == EAGAIN)
      break;
    else if (errno != EINTR)
      error_ = errno;
  }
  waiting_.erase(0, error_ ? waiting_.size() : done);
  if (done > 0) patience_.reset();
  if (error_ && !std::exchange(reported_, true)) changed_();
  return waiting_.empty();
}

void ConsoleStream::on_writable() {
  if (write_some()) {
    writable_.reset();
    stuck_ = false;
  }
  watch_patience();
  changed_();
}

void ConsoleStream::watch_patience() {
  if (!congested()) {
    patience_.reset();
  } else if (!patience_) {
    patience_ = loop_.after(kPatience, [this] {
      stuck_ = true;
      patience_.reset();
      changed_();
    });
  }
}

void ConsoleStream::finish(Deadline deadline) {
  writable_.reset();
  while (!write_some() && !deadline.expired()) {
    pollfd ready = {fd_, POLLOUT, 0};
    ::poll(&ready, 1, static_cast<int>(deadline.remaining().count()));
  }
  patience_.reset();
}

}  // namespace ddprun
