// SPDX-License-Identifier: MIT
// Fake NCCL: where the ranks of a communicator meet. It is a file in memory without a name; the
// unique id says which descriptor of which process it is, and the others open it through /proc, so
// that nothing is left when all are killed. As with NCCL, ranks can join only while the process
// that made the id lives. Ranks that are threads of one process share one mapping: then a
// collective orders them for ThreadSanitizer as it does in reality.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "doubles/fake_nccl.h"

namespace ddprun::doubles {

inline constexpr int kMaxRanks = 64;

/// All processes of a communicator pass it together, again and again.
struct Barrier {
  std::atomic<std::uint32_t> arrived;
  std::atomic<std::uint32_t> round;
};

/// What a rank is about to do.
struct Description {
  std::uint64_t number;  // of its operations, from 1
  int kind, type, op, root;
  std::uint64_t count;
  bool operator==(const Description&) const = default;
};

/// What a rank tells about itself when it joins, and later for a split.
struct Member {
  std::atomic<int> pid;
  int version;
  std::uint64_t host;
  char bus[16];
  Description description;
  int color, key;
  NcclUniqueId part;
};

struct Header {
  std::uint64_t nonce;  // of the unique id
  std::atomic<int> size;
  std::atomic<std::uint32_t> joined;
  std::atomic<bool> init_failed;
  Barrier of_hosts, of_devices;
  std::array<Member, kMaxRanks> members;
};

class Segment {
 public:
  static constexpr std::size_t kSlotBytes = std::size_t{1} << 18;

  static NcclUniqueId make_id();
  /// Gives up what this process holds of an id that it made, if it did: nobody can join any more.
  static void drop_id(const NcclUniqueId& id);
  /// Null when it is gone: whoever made the id has ended.
  static std::shared_ptr<Segment> open(const NcclUniqueId& id, int size);

  Segment(int file, int size);
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  Header& header() { return *header_; }
  Member& member(int rank) { return header_->members[static_cast<std::size_t>(rank)]; }
  /// Where a rank puts data for the others.
  std::byte* slot(int rank) { return slots_ + static_cast<std::size_t>(rank) * kSlotBytes; }
  int size() const { return size_; }

  /// Waits for all ranks; `check` is called meanwhile and throws to leave.
  void pass(Barrier& barrier, const std::function<void()>& check);
  /// Whether the process of a rank that has joined is gone; a zombie is.
  bool dead(int rank);

 private:
  const int size_;
  std::size_t bytes_;
  Header* header_;
  std::byte* slots_;
};

}  // namespace ddprun::doubles
