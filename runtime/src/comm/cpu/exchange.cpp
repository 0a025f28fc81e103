// SPDX-License-Identifier: MIT
// all_reduce through the exchange slots; see exchange.h.
#include "comm/cpu/exchange.h"

#include <algorithm>

namespace ddprun {
namespace {

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

Exchange::Exchange(Collectives& group, TensorView buffer, ReduceInPlace reduce)
    : group_(group),
      buffer_(buffer),
      reduce_(reduce),
      rank_(static_cast<std::size_t>(group.doorbell_.rank())),
      size_(static_cast<std::size_t>(group.doorbell_.size())),
      piece_(slot_piece_bytes(group.doorbell_.size())),
      chunk_bytes_(std::min(piece_ * size_, round_up(buffer.bytes(), kLine * size_))),
      chunks_((buffer.bytes() + chunk_bytes_ - 1) / chunk_bytes_) {}

Exchange::Part Exchange::part(std::size_t chunk, std::size_t rank) const {
  const std::size_t begin = chunk * chunk_bytes_;
  const std::size_t end = std::min(buffer_.bytes(), begin + chunk_bytes_);
  const std::size_t share = round_up((end - begin + size_ - 1) / size_, kLine);
  const std::size_t offset = std::min(end, begin + rank * share);
  return {offset, std::min(share, end - offset)};
}

std::byte* Exchange::slot(std::size_t owner, std::size_t chunk, std::size_t rank) const {
  return group_.slots_[owner]->data() + (chunk % kSlotDepth * size_ + rank) * (piece_ + kLine);
}

void Exchange::fill_slots() {
  for (std::size_t c = 0; c < std::min(kSlotDepth, chunks_); ++c) swap(c, false, c);
}

void Exchange::swap(std::size_t chunk, bool take, std::size_t next) {
  auto* const data = static_cast<std::byte*>(buffer_.data);
  for (std::size_t k = 1; k < size_; ++k) {
    const std::size_t r = (rank_ + k) % size_;
    const Part out = take ? part(chunk, r) : Part{};
    const Part in = next < chunks_ ? part(next, r) : Part{};
    group_.kernels_.swap_slot(data + out.offset, slot(rank_, take ? chunk : next, r),
                              data + in.offset, out.bytes, in.bytes);
  }
  if (next < chunks_) group_.doorbell_.post_in(progress_at(next + 1));
}

void Exchange::reduce_own_part(std::size_t chunk) {
  const Part own = part(chunk, rank_);
  for (std::size_t r = 0; r < size_; ++r)
    group_.inputs_[r] =
        r == rank_ ? static_cast<std::byte*>(buffer_.data) + own.offset : slot(r, chunk, rank_);
  reduce_(group_.inputs_.data(), static_cast<int>(size_), own.bytes / size_of(buffer_.dtype));
  group_.doorbell_.post_out(progress_at(chunk + 1));
}

void Exchange::run() {
  Waiter& waiter = group_.doorbell_.waiter();
  for (std::size_t c = 0; c <= chunks_; ++c) {
    if (c < chunks_) {
      waiter.wait_all(group_.doorbell_.in(), progress_at(c + 1));
      reduce_own_part(c);
    }
    if (c > 0) {
      waiter.wait_all(group_.doorbell_.out(), progress_at(c));
      swap(c - 1, true, c - 1 + kSlotDepth);
    }
  }
  group_.progress_ += static_cast<std::uint32_t>(chunks_);
}

}  // namespace ddprun
