// SPDX-License-Identifier: MIT
// Loop on Boost.Asio; see loop.h. The only file of the launcher that includes it.
#include "loop.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

namespace ddprun {
namespace {

namespace asio = boost::asio;
using WaitType = asio::posix::stream_descriptor::wait_type;

// Every handler holds its State, so a callback may destroy the Watch it belongs to.

struct DescriptorWatch final : Loop::Watch::State, std::enable_shared_from_this<DescriptorWatch> {
  DescriptorWatch(asio::io_context& context, int fd, WaitType wait_type, Loop::Callback fn)
      : descriptor(context, fd), type(wait_type), callback(std::move(fn)) {}

  void arm() {
    descriptor.async_wait(type, [self = shared_from_this()](boost::system::error_code error) {
      if (error || self->cancelled) return;
      self->callback();
      if (!self->cancelled) self->arm();
    });
  }
  void cancel() override {
    cancelled = true;
    descriptor.release();  // the descriptor is the caller's
  }

  asio::posix::stream_descriptor descriptor;
  WaitType type;
  Loop::Callback callback;
  bool cancelled = false;
};

struct TimerWatch final : Loop::Watch::State, std::enable_shared_from_this<TimerWatch> {
  TimerWatch(asio::io_context& context, std::chrono::milliseconds delay, Loop::Callback fn)
      : timer(context, delay), callback(std::move(fn)) {}

  void arm() {
    timer.async_wait([self = shared_from_this()](boost::system::error_code error) {
      if (!error && !self->cancelled) self->callback();
    });
  }
  void cancel() override {
    cancelled = true;
    timer.cancel();
  }

  asio::steady_timer timer;
  Loop::Callback callback;
  bool cancelled = false;
};

struct SignalWatch final : Loop::Watch::State, std::enable_shared_from_this<SignalWatch> {
  SignalWatch(asio::io_context& context, std::function<void(int)> fn)
      : signals(context), callback(std::move(fn)) {}

  void arm() {
    signals.async_wait([self = shared_from_this()](boost::system::error_code error, int number) {
      if (error || self->cancelled) return;
      self->callback(number);
      if (!self->cancelled) self->arm();
    });
  }
  void cancel() override {
    cancelled = true;
    signals.clear();
    signals.cancel();  // clear() leaves the wait, which would hold this
  }

  asio::signal_set signals;
  std::function<void(int)> callback;
  bool cancelled = false;
};

template <class State, class... Args>
Loop::Watch start(Args&&... args) {
  auto state = std::make_shared<State>(std::forward<Args>(args)...);
  state->arm();
  return Loop::Watch(std::move(state));
}

}  // namespace

struct Loop::Impl {
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
};

Loop::Loop() : impl_(std::make_unique<Impl>()) {}
Loop::~Loop() = default;

void Loop::run() {
  impl_->context.restart();
  impl_->context.run();
}

void Loop::stop() { impl_->context.stop(); }

void Loop::post(Callback callback) { asio::post(impl_->context, std::move(callback)); }

Loop::Watch Loop::when_readable(int fd, Callback callback) {
  return start<DescriptorWatch>(impl_->context, fd, WaitType::wait_read, std::move(callback));
}

Loop::Watch Loop::when_writable(int fd, Callback callback) {
  return start<DescriptorWatch>(impl_->context, fd, WaitType::wait_write, std::move(callback));
}

Loop::Watch Loop::after(std::chrono::milliseconds delay, Callback callback) {
  return start<TimerWatch>(impl_->context, delay, std::move(callback));
}

Loop::Watch Loop::on_signals(const std::vector<int>& signals, std::function<void(int)> callback) {
  auto state = std::make_shared<SignalWatch>(impl_->context, std::move(callback));
  for (const int number : signals) state->signals.add(number);
  state->arm();
  return Watch(std::move(state));
}

}  // namespace ddprun
