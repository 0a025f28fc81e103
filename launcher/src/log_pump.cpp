// SPDX-License-Identifier: MIT
// Moves bytes from a worker's pipe; see log_pump.h.
#include "log_pump.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace ddprun {
namespace {

constexpr std::chrono::milliseconds kIdle{500};
constexpr int kReadsPerTurn = 4;  // then other streams have theirs

}  // namespace

LogPump::LogPump(Loop& loop, LogSource source, UniqueFd pipe, Targets targets,
                 std::span<char> buffer)
    : loop_(loop),
      source_(std::move(source)),
      pipe_(std::move(pipe)),
      targets_(std::move(targets)),
      buffer_(buffer) {
  ::fcntl(pipe_.get(), F_SETFL, O_NONBLOCK);
  resume();
}

void LogPump::resume() {
  if (pipe_ && !readable_) readable_ = loop_.when_readable(pipe_.get(), [this] { on_readable(); });
}

void LogPump::on_readable() {
  for (int i = 0; i < kReadsPerTurn; ++i) {
    if (targets_.console && targets_.console->congested(source_.stream)) {
      readable_.reset();  // until resume()
      return;
    }
    if (!read_once()) return;
  }
}

/// False when there is no more now, or nothing will come any more.
bool LogPump::read_once() {
  const ssize_t n = ::read(pipe_.get(), buffer_.data(), buffer_.size());
  if (n > 0) {
    take({buffer_.data(), static_cast<std::size_t>(n)});
    return static_cast<std::size_t>(n) == buffer_.size();
  }
  if (n < 0 && errno == EINTR) return true;
  if (n == 0 || errno != EAGAIN) close();
  return false;
}

void LogPump::take(std::string_view bytes) {
  if (targets_.file) targets_.file->append(bytes);
  if (targets_.tail) targets_.tail->append(bytes);
  if (!targets_.console) return;
  show(bytes);
  targets_.console->flush();
}

void LogPump::show(std::string_view bytes) {
  Console& console = *targets_.console;
  if (source_.tag.empty()) {  // the only rank: as it is, at once
    const bool whole = bytes.back() == '\n';
    console.write(source_, bytes.substr(0, bytes.size() - (whole ? 1 : 0)),
                  whole ? LineEnd::newline : LineEnd::none);
    return;
  }
  splitter_.feed(bytes,
                 [&](std::string_view text, LineEnd end) { console.write(source_, text, end); });
  last_ = std::chrono::steady_clock::now();
  if (splitter_.holds_back() && !idle_) idle_ = loop_.after(kIdle, [this] { flush_idle(); });
}

void LogPump::flush_idle() {
  idle_.reset();
  if (!splitter_.holds_back()) return;
  const auto since =
      std::chrono::ceil<std::chrono::milliseconds>(std::chrono::steady_clock::now() - last_);
  if (since < kIdle) {
    idle_ = loop_.after(kIdle - since, [this] { flush_idle(); });
    return;
  }
  splitter_.flush(
      [this](std::string_view text, LineEnd end) { targets_.console->write(source_, text, end); });
  targets_.console->flush();
}

void LogPump::drain(std::chrono::milliseconds limit, Loop::Callback done) {
  done_ = std::move(done);
  // What is in the pipe now is the worker's own, whether the console has room or not; only this
  // much, for a descendant may write without end.
  int left = 0;
  if (pipe_) ::ioctl(pipe_.get(), FIONREAD, &left);
  for (auto n = static_cast<long>(left); n >= 0 && pipe_; n -= static_cast<long>(buffer_.size()))
    read_once();
  if (pipe_)
    limit_ = loop_.after(limit, [this] { close(); });
  else
    close();
}

void LogPump::close() {
  readable_.reset();
  idle_.reset();
  limit_.reset();
  pipe_.reset();
  if (targets_.console) {
    splitter_.finish([this](std::string_view text, LineEnd end) {
      targets_.console->write(source_, text, end);
    });
    targets_.console->flush();
  }
  if (const auto done = std::exchange(done_, nullptr)) done();
}

}  // namespace ddprun
