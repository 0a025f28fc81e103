// SPDX-License-Identifier: MIT
// DistributedSampler; see sampler.h.
#include <ddprun/error.h>
#include <ddprun/sampler.h>

#include <numeric>
#include <random>

#include <fmt/core.h>

#include "comm/agreement.h"
#include "train/randperm.h"

namespace ddprun {

DistributedSampler::DistributedSampler(std::size_t dataset_size, ProcessGroup& group,
                                       SamplerOptions options)
    : DistributedSampler(dataset_size, group.size(), group.rank(), options) {
  const std::vector<std::string> facts = {
      fmt::format("dataset_size {}", dataset_size),
      fmt::format("seed {}", options.seed),
      fmt::format("shuffle {}, drop_last {}", options.shuffle, options.drop_last),
  };
  require_same_on_all_ranks(group, "[sampler] construction", facts,
                            "give all ranks the same data set and options");
}

DistributedSampler::DistributedSampler(std::size_t dataset_size, int num_replicas, int rank,
                                       SamplerOptions options)
    : dataset_size_(dataset_size), num_replicas_(num_replicas), rank_(rank), options_(options) {
  if (rank < 0 || rank >= num_replicas)
    throw UsageError(fmt::format(
        "[sampler] construction: rank {} of {} replicas; it must be in 0..num_replicas-1", rank,
        num_replicas));
  set_epoch(0);
}

void DistributedSampler::set_epoch(std::int64_t epoch) {
  std::vector<std::size_t> all;
  if (options_.shuffle) {
    // PyTorch seeds with the low 32 bits of the sum.
    const std::uint64_t seed = options_.seed + static_cast<std::uint64_t>(epoch);
    std::mt19937 generator(static_cast<std::uint32_t>(seed));
    all = randperm(dataset_size_, generator);
  } else {
    all.resize(dataset_size_);
    std::iota(all.begin(), all.end(), std::size_t{0});
  }
  const auto replicas = static_cast<std::size_t>(num_replicas_);
  const std::size_t padding = options_.drop_last ? 0 : replicas - 1;
  const std::size_t per_rank = (dataset_size_ + padding) / replicas;
  indices_.resize(per_rank);
  // Rank r takes every num_replicas-th index from r; past the end the list starts again.
  for (std::size_t k = 0; k < per_rank; ++k)
    indices_[k] = all[(static_cast<std::size_t>(rank_) + k * replicas) % dataset_size_];
}

std::vector<std::span<const std::size_t>> DistributedSampler::batches(
    std::size_t batch_size) const {
  if (batch_size == 0)
    throw UsageError("[sampler] batches: the batch size is 0; it must be at least 1");
  std::vector<std::span<const std::size_t>> result;
  std::span<const std::size_t> rest = indices_;
  while (!rest.empty()) {
    const std::size_t n = std::min(batch_size, rest.size());
    result.push_back(rest.first(n));
    rest = rest.subspan(n);
  }
  return result;
}

std::size_t per_rank_batch(std::size_t global_batch, const ProcessGroup& group) {
  const auto size = static_cast<std::size_t>(group.size());
  if (global_batch == 0 || global_batch % size != 0)
    throw UsageError(fmt::format(
        "[sampler] per_rank_batch: a global batch of {} cannot be split evenly between {} rank(s); "
        "choose a multiple of {}, at least that",
        global_batch, size, size));
  return global_batch / size;
}

}  // namespace ddprun
