// SPDX-License-Identifier: MIT
// The launcher's one thread of decisions: calls back when a descriptor is ready, a time has come or
// a signal has arrived. Nothing wakes it otherwise.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace ddprun {

/// Threads: one thread constructs, runs and destroys it; every callback runs on it. post() alone
/// may come from any thread.
class Loop {
 public:
  using Callback = std::function<void()>;

  /// A registration; it ends when this is destroyed, which its own callback may do.
  class Watch {
   public:
    struct State {
      State() = default;
      State(const State&) = delete;
      State& operator=(const State&) = delete;
      virtual ~State() = default;
      virtual void cancel() = 0;
    };

    Watch() = default;
    explicit Watch(std::shared_ptr<State> state) : state_(std::move(state)) {}
    Watch(Watch&& other) noexcept = default;
    Watch& operator=(Watch&& other) noexcept {
      reset();
      state_ = std::move(other.state_);
      return *this;
    }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    ~Watch() { reset(); }

    explicit operator bool() const { return state_ != nullptr; }
    void reset() {
      if (const auto state = std::exchange(state_, nullptr)) state->cancel();
    }

   private:
    std::shared_ptr<State> state_;
  };

  Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop();

  /// Blocks: until stop(). An exception of a callback comes out of here.
  void run();
  void stop();
  /// Calls back in a turn of its own, after what was posted before.
  void post(Callback callback);

  /// Calls back each time `fd` can be read (also at end of file) or written. The registration
  /// stands when this returns, and descriptors are served in the order they became ready.
  /// Owns: the caller keeps `fd` open longer than the Watch.
  [[nodiscard]] Watch when_readable(int fd, Callback callback);
  [[nodiscard]] Watch when_writable(int fd, Callback callback);
  /// Calls back once.
  [[nodiscard]] Watch after(std::chrono::milliseconds delay, Callback callback);
  /// Handles these signals, whichever thread the system gives them to.
  [[nodiscard]] Watch on_signals(const std::vector<int>& signals,
                                 std::function<void(int)> callback);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
