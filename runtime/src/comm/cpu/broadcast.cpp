// SPDX-License-Identifier: MIT
// broadcast: small data travels with the bells; larger is read where root has it in shared memory,
// or comes through root's slots.
#include <algorithm>
#include <cstring>

#include "comm/cpu/collectives.h"

namespace ddprun {

void Collectives::broadcast(TensorView buffer, int root) {
  if (doorbell_.size() == 1) return;
  if (buffer.bytes() <= kBoxBytes) return broadcast_staged(buffer, root);
  const int rank = doorbell_.rank();
  const auto allocation = find_allocation(buffer);
  Bell& bell = doorbell_.bell(rank);
  if (allocation) {
    const auto* const base = allocation->segments[static_cast<std::size_t>(rank)]->data();
    bell.allocation = allocation->id;
    bell.offset = static_cast<std::uint64_t>(static_cast<std::byte*>(buffer.data) - base);
  }
  doorbell_.ring();
  doorbell_.meet();
  if (doorbell_.common_allocation() == 0) {
    broadcast_through_slots(buffer, root);
  } else if (rank != root) {
    const auto* const base = allocation->segments[static_cast<std::size_t>(root)]->data();
    std::memcpy(buffer.data, base + doorbell_.bell(root).offset, buffer.bytes());
  }
  doorbell_.meet_again();  // root may change its data, and nobody leaves, before all have it
}

void Collectives::broadcast_staged(TensorView buffer, int root) {
  if (doorbell_.rank() == root) stage(buffer);
  doorbell_.ring();
  doorbell_.meet();
  if (doorbell_.rank() != root && buffer.numel > 0)
    std::memcpy(buffer.data, staged(root, buffer.bytes()), buffer.bytes());
}

void Collectives::broadcast_through_slots(TensorView buffer, int root) {
  const std::size_t depth = kSlotDepth * static_cast<std::size_t>(doorbell_.size());
  const std::size_t piece = slot_piece_bytes(doorbell_.size());
  const std::size_t pieces = (buffer.bytes() + piece - 1) / piece;
  std::byte* const slots = slots_[static_cast<std::size_t>(root)]->data();
  auto* const data = static_cast<std::byte*>(buffer.data);
  const auto progress_at = [&](std::size_t p) { return progress_ + static_cast<std::uint32_t>(p); };
  for (std::size_t p = 0; p < pieces; ++p) {
    std::byte* const slot = slots + p % depth * (piece + kLine);
    const std::size_t bytes = std::min(piece, buffer.bytes() - p * piece);
    if (doorbell_.rank() == root) {
      if (p >= depth) doorbell_.waiter().wait_all(doorbell_.out(), progress_at(p - depth + 1));
      std::memcpy(slot, data + p * piece, bytes);
      doorbell_.post_in(progress_at(p + 1));
    } else {
      doorbell_.waiter().wait_one(doorbell_.in(), root, progress_at(p + 1));
      std::memcpy(data + p * piece, slot, bytes);
      doorbell_.post_out(progress_at(p + 1));
    }
  }
  post_progress(progress_at(pieces));
}

}  // namespace ddprun
