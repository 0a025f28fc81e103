// SPDX-License-Identifier: MIT
// DistributedSampler and randperm against PyTorch's own index lists.
#include <ddprun/error.h>
#include <ddprun/hash_store.h>
#include <ddprun/sampler.h>

#include <set>
#include <vector>

#include <doctest/doctest.h>

#include "support/run_ranks.h"
#include "support/vectors.h"
#include "train/randperm.h"

using namespace ddprun;
using ddprun::test::fnv1a64;
using ddprun::test::read_vectors;
using Indices = std::vector<std::size_t>;

namespace {

DistributedSampler sampler_of(const nlohmann::json& c, std::size_t rank) {
  const SamplerOptions options{
      .shuffle = c["shuffle"], .drop_last = c["drop_last"], .seed = c["seed"]};
  DistributedSampler sampler(c["n"], c["world"], static_cast<int>(rank), options);
  sampler.set_epoch(c["epoch"]);
  return sampler;
}

Indices copy(std::span<const std::size_t> s) { return {s.begin(), s.end()}; }

}  // namespace

TEST_SUITE("train") {
  TEST_CASE("DistributedSampler: every index list is PyTorch's") {
    const auto vectors = read_vectors("distributed_sampler.json");
    REQUIRE(vectors["cases"].size() == 1200);
    for (const auto& c : vectors["cases"]) {
      for (std::size_t rank = 0; rank < c["world"]; ++rank) {
        CAPTURE(rank);
        const auto sampler = sampler_of(c, rank);
        const bool same = copy(sampler.indices()) == c["ranks"][rank].get<Indices>();
        CHECK_MESSAGE(same, c.dump());
        CHECK(sampler.indices().size() == c["num_samples"].get<std::size_t>());
      }
    }
  }

  TEST_CASE("DistributedSampler: the last rank's index list of 100003 samples is PyTorch's") {
    const auto vectors = read_vectors("distributed_sampler.json");
    REQUIRE(!vectors["hashed"].empty());
    for (const auto& c : vectors["hashed"]) {
      const std::size_t rank = c["world"].get<std::size_t>() - 1;  // the one that meets the padding
      CHECK(fnv1a64(sampler_of(c, rank).indices()) == c["ranks"][rank]["fnv1a64"]);
    }
  }

  TEST_CASE("randperm: every permutation is PyTorch's") {
    const auto vectors = read_vectors("randperm.json");
    for (const auto& s : vectors["seeds"]) {
      const std::uint32_t seed = s["seed_low32"];
      for (const auto& [n, expected] : s["perms"].items()) {
        std::mt19937 generator(seed);
        CHECK(randperm(std::stoul(n), generator) == expected.get<Indices>());
      }
      for (const auto& [n, expected] : s["hashed"].items()) {
        if (!expected.contains("fnv1a64")) continue;
        std::mt19937 generator(seed);
        CHECK(fnv1a64(randperm(std::stoul(n), generator)) == expected["fnv1a64"]);
      }
      std::mt19937 generator(seed);
      for (const auto& expected : s["successive"])
        CHECK(randperm(expected.size(), generator) == expected.get<Indices>());
    }
  }

  TEST_CASE("DistributedSampler: the order changes between epochs only with set_epoch") {
    DistributedSampler sampler(22, 2, 1);
    const Indices first = copy(sampler.indices());
    CHECK(copy(sampler.indices()) == first);
    sampler.set_epoch(1);
    CHECK(copy(sampler.indices()) != first);
    sampler.set_epoch(0);
    CHECK(copy(sampler.indices()) == first);
  }

  TEST_CASE("DistributedSampler: batches are the indices in order and the last may be shorter") {
    const DistributedSampler sampler(23, 2, 0, {.shuffle = false});
    Indices joined;
    std::vector<std::size_t> sizes;
    for (const auto batch : sampler.batches(5)) {
      joined.insert(joined.end(), batch.begin(), batch.end());
      sizes.push_back(batch.size());
    }
    CHECK(joined == copy(sampler.indices()));
    CHECK(sizes == std::vector<std::size_t>{5, 5, 2});
    CHECK(DistributedSampler(0, 2, 0).batches(5).empty());
  }

  TEST_CASE("DistributedSampler: wrong arguments are named") {
    CHECK_THROWS_WITH_AS(DistributedSampler(5, 2, 2), doctest::Contains("rank 2 of 2 replicas"),
                         UsageError);
    CHECK_THROWS_WITH_AS(DistributedSampler(5, 2, -1), doctest::Contains("rank -1 of 2 replicas"),
                         UsageError);
    CHECK_THROWS_WITH_AS(DistributedSampler(5, 2, 0).batches(0),
                         doctest::Contains("batch size is 0"), UsageError);
  }

  TEST_CASE("DistributedSampler: ranks with different seeds all fail with the same text") {
    const auto store = make_hash_store();
    const auto errors = test::errors_of_ranks(3, [&](int rank) {
      ProcessGroup group(store, rank, 3);
      DistributedSampler(10, group, {.seed = rank == 1 ? 7U : 0U});
    });
    CHECK(errors[0] ==
          "[sampler] construction: the ranks differ: rank 1 has seed 7, ranks 0, 2 have seed 0; "
          "give all ranks the same data set and options");
    CHECK(errors[1] == errors[0]);
    CHECK(errors[2] == errors[0]);
  }

  TEST_CASE("per_rank_batch: divides, or names batch and ranks") {
    const auto store = make_hash_store();
    test::run_ranks(3, [&](int rank) {
      const ProcessGroup group(store, rank, 3);
      CHECK(per_rank_batch(12, group) == 4);
      CHECK_THROWS_WITH_AS(per_rank_batch(64, group), doctest::Contains("64"), UsageError);
      CHECK_THROWS_WITH_AS(per_rank_batch(2, group), doctest::Contains("3 rank(s)"), UsageError);
      CHECK_THROWS_AS(per_rank_batch(0, group), UsageError);
    });
  }
}
