// SPDX-License-Identifier: MIT
// all_reduce; see collectives.h for the ways it takes.
#include <algorithm>
#include <cstring>
#include <span>

#include "comm/cpu/collectives.h"
#include "comm/cpu/exchange.h"

namespace ddprun {

void Collectives::all_reduce(TensorView buffer, ReduceOp op) {
  if (doorbell_.size() == 1) return;
  const auto type = static_cast<std::size_t>(buffer.dtype);
  const auto rule = static_cast<std::size_t>(op);
  const ReduceInPlace reduce = kernels_.in_place[type][rule];
  if (buffer.bytes() <= small_bytes()) {
    if (combining_) return combine(buffer, reduce);
    return mailbox(buffer, kernels_.to[type][rule]);
  }
  const auto allocation = find_allocation(buffer);
  Exchange exchange(*this, buffer, reduce);
  if (allocation) {
    const auto* const base =
        allocation->segments[static_cast<std::size_t>(doorbell_.rank())]->data();
    Bell& bell = doorbell_.bell(doorbell_.rank());
    bell.allocation = allocation->id;
    bell.offset = static_cast<std::uint64_t>(static_cast<std::byte*>(buffer.data) - base);
  } else {
    exchange.fill_slots();  // what no other rank waits for is done before we meet
  }
  doorbell_.ring();
  doorbell_.meet();
  if (doorbell_.common_allocation() != 0) return slices(buffer, *allocation, reduce);
  if (allocation) exchange.fill_slots();
  exchange.run();
}

void Collectives::mailbox(TensorView buffer, ReduceTo reduce) {
  stage(buffer);
  doorbell_.ring();
  doorbell_.meet();
  for (int r = 0; r < doorbell_.size(); ++r)
    inputs_[static_cast<std::size_t>(r)] = staged(r, buffer.bytes());
  reduce(buffer.data, inputs_.data(), doorbell_.size(), buffer.numel);
}

void Collectives::combine(TensorView buffer, ReduceInPlace reduce) {
  const std::byte* const result = stage(buffer);
  doorbell_.ring();
  if (doorbell_.last_to_arrive()) {
    for (int r = 0; r < doorbell_.size(); ++r)
      inputs_[static_cast<std::size_t>(r)] = staged(r, buffer.bytes());
    reduce(inputs_.data(), doorbell_.size(), buffer.numel);
    doorbell_.ring_done();
  } else {
    doorbell_.wait_done();
  }
  if (buffer.numel > 0) std::memcpy(buffer.data, result, buffer.bytes());
}

void Collectives::slices(TensorView buffer, const Allocation& allocation, ReduceInPlace reduce) {
  const auto size = static_cast<std::size_t>(doorbell_.size());
  const auto rank = static_cast<std::size_t>(doorbell_.rank());
  const std::size_t element = size_of(buffer.dtype);
  const std::size_t line = kLine / element;
  const std::size_t slice = ((buffer.numel + size - 1) / size + line - 1) / line * line;
  const std::size_t begin = std::min(buffer.numel, slice * rank);
  const std::size_t end = std::min(buffer.numel, begin + slice);
  for (std::size_t r = 0; r < size; ++r)
    inputs_[r] = allocation.segments[r]->data() + doorbell_.bell(static_cast<int>(r)).offset +
                 begin * element;
  reduce(inputs_.data(), static_cast<int>(size), end - begin);
  doorbell_.meet_again();
}

}  // namespace ddprun
