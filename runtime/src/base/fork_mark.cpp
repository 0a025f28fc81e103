// SPDX-License-Identifier: MIT
// Counts forks in the child; see fork_mark.h.
#include "base/fork_mark.h"

#include <ddprun/error.h>

#include <atomic>
#include <cstring>

#include <fmt/core.h>
#include <pthread.h>

namespace ddprun {
namespace {

// How many forks lie between this process and the first one. The one variable of the whole process:
// a fork is an event of the process, and its handler is given nothing.
std::atomic<std::uint32_t> forks{0};

}  // namespace

ForkMark::ForkMark() : forks_(forks.load(std::memory_order_relaxed)) {
  static const int refused =
      ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  if (refused != 0)
    throw DeviceError(fmt::format("[process] pthread_atfork: {}", std::strerror(refused)));
}

bool ForkMark::in_child() const { return forks_ != forks.load(std::memory_order_relaxed); }

}  // namespace ddprun
