// SPDX-License-Identifier: MIT
// Sleeping until a word changes. The calls to the kernel are invisible to ThreadSanitizer, so that
// threads are ordered by the caller's loads and stores alone, and they work between processes.
#pragma once

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ddprun::doubles {

/// Returns when somebody wakes the word, when it is not `old`, after 1 ms, or for no reason.
inline void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t old) {
  const timespec at_most = {0, 1'000'000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, old, &at_most, nullptr, 0);
}

inline void futex_wake_all(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace ddprun::doubles
