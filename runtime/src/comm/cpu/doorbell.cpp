// SPDX-License-Identifier: MIT
// Rings, meets and compares calls; see doorbell.h.
#include "comm/cpu/doorbell.h"

#include <utility>

namespace ddprun {

Doorbell::Doorbell(int rank, std::vector<Page*> pages, Health& health)
    : rank_(rank), pages_(std::move(pages)), health_(health), waiter_(health, rank) {
  for (Page* page : pages_) {
    bells_[0].push_back(&page->bell[0].flag);
    bells_[1].push_back(&page->bell[1].flag);
    in_.push_back(&page->in);
    out_.push_back(&page->out);
  }
}

void Doorbell::begin(const Call& call, const Operation& operation, std::chrono::microseconds spin) {
  health_.begin(call, operation.sequence, step_ + 1);
  waiter_.begin(operation.deadline, spin);
  ++step_;
  Bell& mine = bell(rank_);
  mine.call = call;
  mine.allocation = 0;
}

void Doorbell::meet() {
  waiter_.wait_all(bells_[step_ & 1], step_);
  check_calls();
}

void Doorbell::check_calls() {
  const Call& mine = bell(rank_).call;
  for (int r = 0; r < size(); ++r)
    if (bell(r).call != mine) health_.fail_difference();
}

std::uint32_t Doorbell::common_allocation() {
  const std::uint32_t mine = bell(rank_).allocation;
  for (int r = 0; r < size(); ++r)
    if (bell(r).allocation != mine) return 0;
  return mine;
}

void Doorbell::meet_again() {
  ++step_;
  ring();
  waiter_.wait_all(bells_[step_ & 1], step_);
}

bool Doorbell::last_to_arrive() {
  Central& central = pages_[0]->central;
  ++combined_;
  const auto arrived = central.arrivals.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (arrived != combined_ * static_cast<std::uint32_t>(size())) return false;
  central.combiner.store(rank_, std::memory_order_relaxed);
  check_calls();
  return true;
}

void Doorbell::ring_done() {
  Central& central = pages_[0]->central;
  central.combiner.store(-1, std::memory_order_relaxed);
  central.done.post(combined_);
}

void Doorbell::wait_done() {
  Central& central = pages_[0]->central;
  waiter_.wait_done(central, combined_, bells_[step_ & 1], step_);
}

}  // namespace ddprun
