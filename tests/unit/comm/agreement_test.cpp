// SPDX-License-Identifier: MIT
// require_same_on_all_ranks: one text for everybody, and it says who differs in what.
#include "comm/agreement.h"

#include <ddprun/error.h>
#include <ddprun/hash_store.h>
#include <ddprun/process_group.h>

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "support/run_ranks.h"

using namespace ddprun;
using Facts = std::vector<std::string>;

namespace {

// The error of every rank when rank r has facts[r].
std::vector<std::string> errors_with(const std::vector<Facts>& facts) {
  const auto store = make_hash_store();
  const int size = static_cast<int>(facts.size());
  return test::errors_of_ranks(size, [&](int rank) {
    ProcessGroup group(store, rank, size);
    require_same_on_all_ranks(group, "[x] y", facts[static_cast<std::size_t>(rank)], "do z");
  });
}

void check_all(const std::vector<Facts>& facts, const std::string& text) {
  for (const std::string& error : errors_with(facts)) CHECK(error == text);
}

}  // namespace

TEST_SUITE("comm") {
  TEST_CASE("agreement: ranks with the same facts go on") {
    check_all({{"a 1", "b 2"}, {"a 1", "b 2"}, {"a 1", "b 2"}}, "");
    check_all({{}, {}}, "");
    check_all({{"a"}}, "");
  }

  TEST_CASE("agreement: the first difference is told as each side has it") {
    check_all({{"a 1", "b 2", "c 3"}, {"a 1", "b 5", "c 4"}, {"a 1", "b 2", "c 3"}},
              "[x] y: the ranks differ: rank 1 has b 5, ranks 0, 2 have b 2; do z");
  }

  TEST_CASE("agreement: a rank that has less is told from what the others have more") {
    check_all({{}, {"a 1"}, {"a 1"}},
              "[x] y: the ranks differ: rank 0 has nothing more, ranks 1, 2 have a 1; do z");
  }

  TEST_CASE("agreement: of equally many the side of the lowest rank comes last") {
    check_all({{"a 1"}, {"a 2"}}, "[x] y: the ranks differ: rank 1 has a 2, rank 0 has a 1; do z");
  }

  TEST_CASE("agreement: every variant is told up to four and the rest counted") {
    check_all({{"a 0"}, {"a 0"}, {"a 2"}, {"a 3"}, {"a 4"}, {"a 5"}, {"a 6"}},
              "[x] y: the ranks differ: rank 2 has a 2, ranks 0, 1 have a 0; rank 3 has a 3, ranks "
              "0, 1 have a 0; rank 4 has a 4, ranks 0, 1 have a 0; rank 5 has a 5, ranks 0, 1 have "
              "a 0; and 1 other variants; do z");
  }

  TEST_CASE("agreement: facts of any length and with any byte arrive whole") {
    const std::string big(100'000, 'x');
    std::string other = big;
    other.back() = '\xff';
    const auto errors = errors_with({{big}, {other}});
    CHECK(errors[0].find(other) != std::string::npos);
    CHECK(errors[1] == errors[0]);
  }

  TEST_CASE("agreement: the group can still be used afterwards") {
    const auto store = make_hash_store();
    test::run_ranks(2, [&](int rank) {
      ProcessGroup group(store, rank, 2);
      const Facts facts = {rank == 0 ? "a" : "b"};
      CHECK_THROWS_AS(require_same_on_all_ranks(group, "x", facts, "y"), UsageError);
      CHECK(group.mean(rank) == 0.5);
    });
  }
}
