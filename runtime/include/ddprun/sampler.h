// SPDX-License-Identifier: MIT
// Splits a data set between ranks, index for index as PyTorch's DistributedSampler does.
// https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
#pragma once

#include <ddprun/export.h>
#include <ddprun/process_group.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ddprun {

struct SamplerOptions {
  bool shuffle = true;
  /// false: the first indices are repeated until all ranks have equally many.
  bool drop_last = false;
  std::uint64_t seed = 0;  // the same on all ranks
};

class DDPRUN_API DistributedSampler {
 public:
  /// For this rank of the group.
  /// Blocks: until all ranks of the group have made theirs.
  /// Throws: UsageError on all ranks when data set size, seed or options differ between them.
  DistributedSampler(std::size_t dataset_size, ProcessGroup& group, SamplerOptions options = {});
  /// For any rank, without communication. Throws: UsageError unless 0 <= rank < num_replicas.
  DistributedSampler(std::size_t dataset_size, int num_replicas, int rank,
                     SamplerOptions options = {});

  /// Chooses this epoch's order. Without it every epoch has the order of epoch 0.
  void set_epoch(std::int64_t epoch);
  /// This rank's part of the epoch: the same length on every rank.
  std::span<const std::size_t> indices() const { return indices_; }
  /// indices() cut into batches; the last one may be shorter. Throws: UsageError for batch_size 0.
  /// Owns: the sampler; valid until set_epoch().
  std::vector<std::span<const std::size_t>> batches(std::size_t batch_size) const;

 private:
  std::size_t dataset_size_;
  int num_replicas_;
  int rank_;
  SamplerOptions options_;
  std::vector<std::size_t> indices_;
};

/// The batch size of one rank for a global one. Throws: UsageError when it does not divide.
DDPRUN_API std::size_t per_rank_batch(std::size_t global_batch, const ProcessGroup& group);

}  // namespace ddprun
