// SPDX-License-Identifier: MIT
// A process group whose ranks are threads of the test: logic without processes.
#pragma once

#include <ddprun/hash_store.h>
#include <ddprun/process_group.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "support/run_ranks.h"

namespace ddprun::test {

constexpr std::chrono::milliseconds kTestTimeout = std::chrono::seconds(30);

/// What each rank of a new group of n threw from fn(group).
template <class Fn>
std::vector<std::string> errors_of_group(int n, Fn fn,
                                         std::chrono::milliseconds timeout = kTestTimeout) {
  const auto store = make_hash_store();
  return errors_of_ranks(n, [&](int rank) {
    ProcessGroup group(store, rank, n, {.timeout = timeout});
    fn(group);
  });
}

/// Throws what the lowest failing rank threw.
template <class Fn>
void run_group(int n, Fn fn) {
  const auto store = make_hash_store();
  run_ranks(n, [&](int rank) {
    ProcessGroup group(store, rank, n, {.timeout = kTestTimeout});
    fn(group);
  });
}

}  // namespace ddprun::test
