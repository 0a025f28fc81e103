// SPDX-License-Identifier: MIT
// The signal mask and dispositions that the launcher found, for its workers and for its caller.
#pragma once

#include <array>
#include <csignal>

namespace ddprun {

class SignalState {
 public:
  /// Saves them; then lets this thread receive the signals the launcher handles, ignores SIGPIPE
  /// and SIGXFSZ (a closed console, a full file are error codes) and takes SIGCHLD as default
  /// (children stay to be reaped).
  SignalState();
  SignalState(const SignalState&) = delete;
  SignalState& operator=(const SignalState&) = delete;
  /// Puts everything back.
  ~SignalState() { restore(); }

  /// Whether the signal was ignored on entry, as nohup does.
  bool ignored(int signal) const;
  /// Async-signal-safe: for a forked child.
  void restore() const noexcept;

  static constexpr std::array kHandled = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT, SIGUSR1, SIGUSR2,
                                          SIGTSTP, SIGCONT, SIGPIPE, SIGXFSZ, SIGCHLD};

 private:
  sigset_t mask_;
  std::array<struct sigaction, kHandled.size()> actions_;
};

/// Blocks every signal for this thread, and for threads and processes it starts meanwhile.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &mask_);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr); }

 private:
  sigset_t mask_;
};

}  // namespace ddprun
