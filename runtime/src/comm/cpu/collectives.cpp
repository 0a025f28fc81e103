// SPDX-License-Identifier: MIT
// What the collectives have in common: where data is staged and found; see collectives.h.
#include "comm/cpu/collectives.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/cpu/processor.h"

namespace ddprun {
namespace {

// Up to here one round of everybody reading everything beats two rounds (measured at 2 ranks).
constexpr std::size_t kMailboxBytes = 512;
constexpr std::size_t kLargestPiece = 128 * 1024;
constexpr std::size_t kSmallestPiece = 8 * 1024;
constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

}  // namespace

std::size_t slot_piece_bytes(int size) {
  return std::clamp(kChunkBytes / static_cast<std::size_t>(size), kSmallestPiece, kLargestPiece) /
         kLine * kLine;
}

std::size_t slot_area_bytes(int size) {
  return kSlotDepth * static_cast<std::size_t>(size) * (slot_piece_bytes(size) + kLine);
}

Collectives::Collectives(Doorbell& doorbell, std::vector<std::shared_ptr<Segment>> slots, int cores)
    : doorbell_(doorbell),
      slots_(std::move(slots)),
      combining_(doorbell.size() > cores),
      kernels_(*usable_reduce_kernels().back()),
      inputs_(static_cast<std::size_t>(doorbell.size())) {}

void Collectives::barrier() { all_reduce({}, ReduceOp::sum); }

std::shared_ptr<std::byte[]> Collectives::adopt(std::vector<std::shared_ptr<Segment>> parts,
                                                std::size_t bytes) {
  std::erase_if(ranges_, [](const Range& range) { return range.allocation.expired(); });
  std::byte* const own = parts[static_cast<std::size_t>(doorbell_.rank())]->data();
  auto allocation = std::make_shared<Allocation>(Allocation{++allocations_, std::move(parts)});
  ranges_.push_back({own, bytes, allocation});
  return {std::move(allocation), own};
}

std::shared_ptr<Allocation> Collectives::find_allocation(const TensorView& buffer) {
  const auto* const data = static_cast<const std::byte*>(buffer.data);
  for (const Range& range : ranges_)
    if (data >= range.begin && data + buffer.bytes() <= range.begin + range.bytes)
      if (auto allocation = range.allocation.lock()) return allocation;
  return nullptr;
}

std::size_t Collectives::small_bytes() const { return combining_ ? kBoxBytes : kMailboxBytes; }

std::byte* Collectives::staged(int rank, std::size_t bytes) {
  return bytes <= Bell::kPayload ? doorbell_.bell(rank).payload : doorbell_.box(rank);
}

std::byte* Collectives::stage(const TensorView& buffer) {
  std::byte* const to = staged(doorbell_.rank(), buffer.bytes());
  if (buffer.numel > 0) std::memcpy(to, buffer.data, buffer.bytes());
  return to;
}

void Collectives::post_progress(std::uint32_t value) {
  progress_ = value;
  doorbell_.post_in(value);
  doorbell_.post_out(value);
}

}  // namespace ddprun
