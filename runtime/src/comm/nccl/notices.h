// SPDX-License-Identifier: MIT
// What the ranks of a group tell each other through the store while it works: that it has failed,
// that somebody left, and how far each has come when an operation is overdue.
#pragma once

#include <ddprun/store.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/nccl/group_failure.h"

namespace ddprun {

/// The last operation that a rank has begun.
struct Position {
  std::uint64_t sequence = 0;
  std::string operation;
};

/// All that has been told so far.
struct News {
  std::optional<Failure> failure;
  std::map<int, std::uint64_t> left;
  std::uint64_t overdue = 0;  // the latest operation for which a rank asks where the others are
};

/// Threads: any. Throws: as Store.
class Notices {
 public:
  Notices(Store& store, int rank, int size) : store_(store), rank_(rank), size_(size) {}

  News read();
  /// Makes `own` the group's failure unless there is one already. Returns the group's.
  Failure agree(const Failure& own);
  /// This rank takes part in nothing after operation `last`.
  void leave(std::uint64_t last);
  /// Asks all ranks to publish where they are.
  void ask(std::uint64_t overdue);
  void publish(const Position& own);
  /// What ranks have published; empty for those that never did.
  std::vector<std::optional<Position>> positions();

 private:
  Store& store_;
  int rank_;
  int size_;
};

}  // namespace ddprun
