// SPDX-License-Identifier: MIT
// What the ranks of a group tell each other through the store while it works: that it has failed,
// that somebody left, and how far each has come when an operation is overdue.
#pragma once

#include <ddprun/store.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "comm/nccl/bounded_call.h"
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

/// The store's own patience is minutes, and it may have stopped with the rank that hosts it: here a
/// call waits one second for its answer, and for what is still under way before it.
/// Threads: any. Throws: as Store; TimeoutError when there is no answer in time.
class Notices {
 public:
  Notices(std::shared_ptr<Store> store, int rank, int size)
      : store_(std::move(store)), rank_(rank), size_(size) {}

  News read();
  /// The failure that has been told; empty also when the store does not answer.
  std::optional<Failure> told();
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
  template <class Call>
  std::invoke_result_t<Call, Store&> ask_store(Call call);

  std::shared_ptr<Store> store_;  // shared with calls that have been left behind
  int rank_;
  int size_;
  std::mutex mutex_;
  std::unique_ptr<BoundedCall> latest_;  // guarded by mutex_
};

}  // namespace ddprun
