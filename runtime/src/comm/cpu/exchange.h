// SPDX-License-Identifier: MIT
// Reduces memory that other ranks cannot see, through the slots. Nouns: the buffer is cut into
// chunks; a chunk into one part per rank; every rank puts its parts of kSlotDepth chunks into its
// slots, reduces in place the part that is its own in everybody's slots, and takes the results out
// of its slots while it puts the next chunk in.
#pragma once

#include <ddprun/tensor_view.h>

#include <cstddef>
#include <cstdint>

#include "comm/cpu/collectives.h"

namespace ddprun {

class Exchange {
 public:
  Exchange(Collectives& group, TensorView buffer, ReduceInPlace reduce);

  /// The first chunks, of which the other ranks need nothing to know.
  void fill_slots();
  /// After fill_slots() and a meeting of all ranks.
  void run();

 private:
  struct Part {
    std::size_t offset = 0;  // in the buffer, bytes
    std::size_t bytes = 0;
  };

  Part part(std::size_t chunk, std::size_t rank) const;
  std::byte* slot(std::size_t owner, std::size_t chunk, std::size_t rank) const;
  void reduce_own_part(std::size_t chunk);
  /// Takes `chunk` out (when it is one) and puts `next` in (when it is one).
  void swap(std::size_t chunk, bool take, std::size_t next);
  std::uint32_t progress_at(std::size_t chunk) const {
    return group_.progress_ + static_cast<std::uint32_t>(chunk);
  }

  Collectives& group_;
  TensorView buffer_;
  ReduceInPlace reduce_;
  std::size_t rank_, size_, piece_;
  std::size_t chunk_bytes_, chunks_;
};

}  // namespace ddprun
