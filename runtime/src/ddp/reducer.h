// SPDX-License-Identifier: MIT
// Counts which gradients are ready and starts the all-reduce of every bucket as soon as it may.
//
// Rule: bucket k starts when it is complete and k-1 has started. Ranks may finish gradients in
// different orders; the collectives have the same order on all of them all the same. The last
// bucket is reduced by synchronize() itself.
#pragma once

#include <ddprun/export.h>
#include <ddprun/process_group.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ddp/bucket_plan.h"

namespace ddprun {

/// Threads: one at a time. Owns: the gradient memory; the group must outlive it.
class DDPRUN_API Reducer {
 public:
  /// `buckets` cover the parameters `names` once. Allocates their memory, zeroed.
  /// Blocks: until all ranks have done so.
  Reducer(ProcessGroup& group, std::vector<std::string> names, std::vector<Bucket> buckets);
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;
  /// In the middle of a step it aborts the group first: operations still use the memory.
  ~Reducer();

  std::span<const Bucket> buckets() const { return buckets_; }
  /// The whole of bucket k.
  TensorView memory(std::size_t k) const;

  /// `after`: the stream on which the gradient was written.
  /// Throws: UsageError when i is out of range or already marked in this step.
  void mark_ready(std::size_t i, Stream after);
  /// Reduces the last bucket, waits for all of them and begins the next step, also when it throws.
  /// Throws: UsageError naming the unmarked parameters, after aborting the group; the error of the
  ///         first bucket that failed.
  void synchronize(Stream stream);

 private:
  void launch_complete_buckets();
  Work launch(std::size_t k, bool async_op);
  void require_all_marked();
  void begin_step();

  ProcessGroup& group_;
  std::vector<std::string> names_;
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;           // by parameter
  std::vector<std::size_t> begin_;               // by bucket: where it starts in memory_
  std::shared_ptr<std::byte[]> memory_;          // all buckets, each on a cache line of its own
  std::vector<bool> marked_;                     // by parameter, in this step
  std::vector<std::size_t> missing_;             // by bucket: gradients not marked yet
  std::vector<Work> launched_;                   // buckets 0..size-1 have been started
  std::vector<std::vector<Stream>> written_on_;  // by bucket: on these streams, in this step
};

}  // namespace ddprun
