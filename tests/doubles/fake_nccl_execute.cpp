// SPDX-License-Identifier: MIT
// Fake NCCL: an operation as a stream runs it. All ranks say what they are about to do and compare;
// then they exchange it piece by piece through the slots of the segment.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string>

#include "doubles/fake_cudart.h"
#include "doubles/fake_nccl_comm.h"
#include "doubles/fake_nccl_fault.h"
#include "doubles/fake_nccl_reduce.h"

namespace ddprun::doubles {
namespace {

std::string describe(const Description& what, int rank) {
  return "rank " + std::to_string(rank) + " " + name_of(static_cast<Kind>(what.kind)) + " count " +
         std::to_string(what.count) + " type " + std::to_string(what.type) + " op " +
         std::to_string(what.op) + " root " + std::to_string(what.root);
}

[[noreturn]] void hang(Comm& comm) {
  for (;;) {
    if (comm.aborted) throw Left{kNcclInternalError};
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

[[noreturn]] void fail(Comm& comm, NcclResult error) {
  NcclResult none = kNcclSuccess;
  comm.state.compare_exchange_strong(none, error, std::memory_order_relaxed);
  hang(comm);
}

/// Ranks must do the same; the real library would not notice.
void compare_descriptions(Comm& comm, const Operation& operation) {
  Segment& segment = *comm.segment;
  // Operations of the user's own have numbers of their own on each rank.
  Description& self = segment.member(comm.rank).description;
  self = {comm.operations.fetch_add(1, std::memory_order_relaxed) + 1,
          operation.kind,
          operation.type,
          std::min(operation.op, kFirstOwnOp),
          operation.root,
          operation.count};
  segment.pass(segment.header().of_devices, [&] { comm.check_peers(); });
  for (int peer = 0; peer < comm.size; ++peer) {
    const Description& other = segment.member(peer).description;
    if (other == self) continue;
    complain(kNcclInvalidUsage, "MISMATCH in operation " + std::to_string(self.number) + ": " +
                                    describe(self, comm.rank) + ", but " + describe(other, peer));
    fail(comm, kNcclInvalidUsage);
  }
}

/// One piece of an operation: elements [at, at + count) of each rank's part.
class Piece {
 public:
  Piece(Comm& comm, const Operation& operation, std::size_t at, std::size_t count)
      : comm_(comm),
        operation_(operation),
        element_(bytes_of(operation.type)),
        at_(at * element_),
        count_(count),
        bytes_(count * element_),
        part_(operation.count * element_),
        in_(static_cast<const std::byte*>(double_cuda_bytes(operation.in))),
        out_(static_cast<std::byte*>(double_cuda_bytes(operation.out))) {}

  void give() const {
    std::byte* const slot = comm_.segment->slot(comm_.rank);
    if (operation_.kind == kBroadcast && comm_.rank != operation_.root) return;
    if (operation_.kind != kReduceScatter) {
      std::memcpy(slot, in_ + at_, bytes_);
      return;
    }
    for (std::size_t rank = 0; rank < ranks(); ++rank)
      std::memcpy(slot + rank * bytes_, in_ + rank * part_ + at_, bytes_);
  }

  void take() const {
    switch (operation_.kind) {
      case kAllReduce:
        return reduce_slots(0);
      case kReduce:
        if (comm_.rank == operation_.root) reduce_slots(0);
        return;
      case kReduceScatter:
        return reduce_slots(static_cast<std::size_t>(comm_.rank) * bytes_);
      case kBroadcast:
        // The root's own memory is written too when it is another place.
        if (comm_.rank != operation_.root || in_ != out_)
          std::memcpy(out_ + at_, comm_.segment->slot(operation_.root), bytes_);
        return;
      case kAllGather:
        for (int rank = 0; rank < comm_.size; ++rank)
          std::memcpy(out_ + static_cast<std::size_t>(rank) * part_ + at_,
                      comm_.segment->slot(rank), bytes_);
        return;
    }
  }

 private:
  std::size_t ranks() const { return static_cast<std::size_t>(comm_.size); }

  void reduce_slots(std::size_t offset) const {
    std::vector<const std::byte*> sources;
    for (int rank = 0; rank < comm_.size; ++rank)
      sources.push_back(comm_.segment->slot(rank) + offset);
    const Scalar& scalar = operation_.scalar;
    const double value = scalar.on_device
                             ? scalar_of(scalar.type, double_cuda_bytes(scalar.on_device))
                             : scalar.value;
    reduce(out_ + at_, sources, count_, operation_.type, operation_.op, value);
  }

  Comm& comm_;
  const Operation& operation_;
  std::size_t element_, at_, count_, bytes_, part_;
  const std::byte* in_;
  std::byte* out_;
};

}  // namespace

const char* name_of(Kind kind) {
  static constexpr std::array names = {"ncclAllReduce", "ncclBroadcast", "ncclReduce",
                                       "ncclAllGather", "ncclReduceScatter"};
  return names[kind];
}

void execute(Comm& comm, const Operation& operation) {
  const Fault fault = planned_fault(comm.rank, name_of(operation.kind), When::kRunning);
  act(fault);
  if (fault.is("hang")) hang(comm);
  if (fault.is("async")) fail(comm, fault.argument);
  compare_descriptions(comm, operation);
  Segment& segment = *comm.segment;
  const auto everyone = [&] {
    segment.pass(segment.header().of_devices, [&] { comm.check_peers(); });
  };
  everyone();  // all have read the descriptions
  const std::size_t element = bytes_of(operation.type);
  const auto parts = static_cast<std::size_t>(operation.kind == kReduceScatter ? comm.size : 1);
  const std::size_t most = Segment::kSlotBytes / element / parts;
  for (std::size_t at = 0; at < operation.count; at += most) {
    const Piece piece(comm, operation, at, std::min(most, operation.count - at));
    piece.give();
    everyone();
    piece.take();
    everyone();
  }
  if (fault.is("corrupt") && operation.count > 0)
    static_cast<std::byte*>(double_cuda_bytes(operation.out))[element - 1] ^= std::byte{0x40};
}

}  // namespace ddprun::doubles
