// SPDX-License-Identifier: MIT
// Rings and poisons the flags of a page; see page.h.
#include "comm/cpu/page.h"

#include <limits>

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ddprun {
namespace {

void wake_sleepers(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

}  // namespace

void Flag::post(std::uint32_t value) {
  cpu.store(::sched_getcpu(), std::memory_order_relaxed);
  // Sequentially consistent, as a sleeper's own two steps are: either it sees the new value or we
  // see that it sleeps.
  const auto old = seq.exchange(value & ~kPoison, std::memory_order_seq_cst);
  if (old & kPoison) poison();
  if (sleepers.load(std::memory_order_seq_cst) != 0) wake_sleepers(seq);
}

void Flag::poison() {
  seq.fetch_or(kPoison, std::memory_order_seq_cst);
  wake_sleepers(seq);
}

}  // namespace ddprun
