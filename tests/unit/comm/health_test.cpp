// SPDX-License-Identifier: MIT
// Health: what a lifeline tells, and that the first failure is the one that everybody names.
#include "comm/cpu/health.h"

#include <ddprun/error.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

using namespace ddprun;

namespace {

// Two ranks in one process; their lifelines are held by threads of the test.
struct TwoRanks {
  TwoRanks() {
    for (auto& page : pages) init_lifeline(*page);
  }
  Health health(int rank) {
    return {rank, {pages[0].get(), pages[1].get()}, {0, 0}, std::chrono::milliseconds(100)};
  }
  std::vector<std::unique_ptr<Page>> pages = [] {
    std::vector<std::unique_ptr<Page>> made;
    made.push_back(std::make_unique<Page>());
    made.push_back(std::make_unique<Page>());
    return made;
  }();
};

}  // namespace

TEST_SUITE("comm") {
  TEST_CASE("Health: a lifeline that is held or free is no death, one whose holder ended is") {
    TwoRanks ranks;
    Health health = ranks.health(0);
    pthread_mutex_t* const lifeline = &ranks.pages[1]->lifeline;
    CHECK_FALSE(health.find_dead().has_value());
    ::pthread_mutex_lock(lifeline);
    std::thread([&] { CHECK_FALSE(health.find_dead().has_value()); }).join();
    ::pthread_mutex_unlock(lifeline);
    CHECK_FALSE(health.find_dead().has_value());
    std::thread([&] { ::pthread_mutex_lock(lifeline); }).join();
    CHECK(health.find_dead() == 1);
    CHECK(health.find_dead() == 1);  // not only for the first who looks
  }

  TEST_CASE("Health: the first failure stays, on all ranks, and every flag is poisoned") {
    TwoRanks ranks;
    Health first = ranks.health(0);
    Health second = ranks.health(1);
    first.begin({CallKind::all_reduce, ReduceOp::max, DType::i64, 0, 12}, 7, 1);
    CHECK_FALSE(first.failed());
    first.record_own(Cause::failed, "no memory");
    second.record(0, Cause::died);
    CHECK(second.failed());
    CHECK_THROWS_WITH_AS(second.begin({CallKind::broadcast, ReduceOp::sum, DType::f32, 1, 3}, 7, 1),
                         "[process_group] broadcast(f32 x 3, root 1) #7: rank 0 failed: no memory",
                         RemoteError);
    CHECK_THROWS_WITH_AS(
        first.throw_failure(),
        "[process_group] all_reduce(max, i64 x 12) #7: this rank failed: no memory", Error);
    for (const auto& page : ranks.pages) {
      CHECK_FALSE(page->bell[0].flag.reached(1));
      for (const Flag* flag : {&page->bell[0].flag, &page->bell[1].flag})
        CHECK((flag->seq.load() & Flag::kPoison) != 0);
    }
  }
}
