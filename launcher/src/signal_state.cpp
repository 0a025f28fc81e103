// SPDX-License-Identifier: MIT
// Saves and restores signal handling; see signal_state.h.
#include "signal_state.h"

namespace ddprun {
namespace {

void set_action(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

SignalState::SignalState() {
  sigset_t handled;
  ::sigemptyset(&handled);
  for (std::size_t i = 0; i < kHandled.size(); ++i) {
    ::sigaction(kHandled[i], nullptr, &actions_[i]);
    ::sigaddset(&handled, kHandled[i]);
  }
  ::pthread_sigmask(SIG_UNBLOCK, &handled, &mask_);
  set_action(SIGPIPE, SIG_IGN);
  set_action(SIGXFSZ, SIG_IGN);
  set_action(SIGCHLD, SIG_DFL);
}

bool SignalState::ignored(int signal) const {
  for (std::size_t i = 0; i < kHandled.size(); ++i)
    if (kHandled[i] == signal) return actions_[i].sa_handler == SIG_IGN;
  return false;
}

void SignalState::restore() const noexcept {
  for (std::size_t i = 0; i < kHandled.size(); ++i) ::sigaction(kHandled[i], &actions_[i], nullptr);
  ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
}

}  // namespace ddprun
