// SPDX-License-Identifier: MIT
// Finds out why an operation cannot finish: what other ranks have told, what the host backend sees
// of their processes, and where each of them is when the operation is overdue.
#pragma once

#include <ddprun/backend.h>

#include <chrono>
#include <exception>
#include <optional>
#include <string>

#include "comm/nccl/nccl_work.h"
#include "comm/nccl/notices.h"

namespace ddprun {

/// Threads: one at a time.
class PeerWatch {
 public:
  PeerWatch(Notices& notices, Backend& host, int rank)
      : notices_(notices), host_(host), rank_(rank) {}

  /// What ends the group, if anything does. `oldest` is the first operation that has not finished,
  /// `last` the last that this rank has begun. Asks the store at most every 200 ms, more often once
  /// `oldest` is overdue: then it takes up to a second to hear where the others are.
  std::optional<Failure> look(const NcclWorkState& oldest, const Position& last);
  /// Tells the store that this rank rests after `last`.
  void rest(const Position& last);

 private:
  std::optional<Failure> look_at_host();
  std::optional<Failure> read_notices(const NcclWorkState& oldest, const Position& last);
  std::optional<Failure> ask_where_all_are(const NcclWorkState& oldest, const Position& last);
  void publish(const Position& last);

  Notices& notices_;
  Backend& host_;
  int rank_;
  Deadline next_reading_ = Deadline::after(std::chrono::milliseconds(0));
  std::uint64_t published_ = 0;  // the position that the store has
  std::uint64_t asked_ = 0;      // the overdue operation
  Deadline answers_until_ = Deadline::never();
};

}  // namespace ddprun
