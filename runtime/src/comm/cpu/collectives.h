// SPDX-License-Identifier: MIT
// The collectives of ranks that share memory. Ways to reduce, all in rank order, one rank per
// element, hence with the same bits:
//
//   mailbox   small data: everybody reads everybody's payload. One round
//   combine   small data, more ranks than cores: the last to arrive reduces for all. One round
//   slices    data in memory from allocate(): rank r reduces slice r of all ranks' buffers, in
//   place exchange  other data: the same through slots, three chunks in flight
//
// Which one is decided by size and by what all ranks have read from all bells: equal everywhere.
#pragma once

#include <ddprun/backend.h>
#include <ddprun/tensor_view.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/cpu/doorbell.h"
#include "comm/cpu/reduce_kernels.h"
#include "comm/cpu/segment.h"

namespace ddprun {

/// Memory from one call of allocate(), as mapped here: by rank.
struct Allocation {
  std::uint32_t id;  // counts from 1, the same on all ranks
  std::vector<std::shared_ptr<Segment>> segments;
};

/// What every rank has in shared memory for data from elsewhere: kSlotDepth chunks of one piece per
/// rank. A piece ends with a spare line, so that no two share one.
constexpr std::size_t kSlotDepth = 3;
std::size_t slot_piece_bytes(int size);
std::size_t slot_area_bytes(int size);

/// Threads: one operation at a time.
/// Throws:  as Health::throw_failure().
class Collectives {
 public:
  /// `slots`: by rank. `cores`: that all ranks together may use.
  Collectives(Doorbell& doorbell, std::vector<std::shared_ptr<Segment>> slots, int cores);

  void all_reduce(TensorView buffer, ReduceOp op);
  void broadcast(TensorView buffer, int root);
  void barrier();

  /// Makes memory of which all ranks have shared their part (by rank) known. Collective.
  std::shared_ptr<std::byte[]> adopt(std::vector<std::shared_ptr<Segment>> parts,
                                     std::size_t bytes);

 private:
  struct Range {
    const std::byte* begin;
    std::size_t bytes;
    std::weak_ptr<Allocation> allocation;  // expired: the memory is somebody else's by now
  };

  std::shared_ptr<Allocation> find_allocation(const TensorView& buffer);
  std::size_t small_bytes() const;

  std::byte* stage(const TensorView& buffer);
  std::byte* staged(int rank, std::size_t bytes);
  void mailbox(TensorView buffer, ReduceTo reduce);
  void combine(TensorView buffer, ReduceInPlace reduce);
  void slices(TensorView buffer, const Allocation& allocation, ReduceInPlace reduce);
  void broadcast_staged(TensorView buffer, int root);
  void broadcast_through_slots(TensorView buffer, int root);
  void post_progress(std::uint32_t value);

  friend class Exchange;

  Doorbell& doorbell_;
  std::vector<std::shared_ptr<Segment>> slots_;
  const bool combining_;
  const ReduceKernels& kernels_;
  std::vector<Range> ranges_;
  std::uint32_t allocations_ = 0;
  std::vector<void*> inputs_;   // by rank; here so that no operation allocates
  std::uint32_t progress_ = 0;  // of the slots, in chunks
};

}  // namespace ddprun
