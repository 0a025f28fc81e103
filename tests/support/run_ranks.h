// SPDX-License-Identifier: MIT
// Ranks as threads: runs fn(rank) on n threads; the error of the lowest failing rank reaches the
// caller, with its rank. Inside fn use CHECK or throw; REQUIRE would abort the run.
#pragma once

#include <ddprun/error.h>

#include <exception>
#include <string>
#include <thread>
#include <vector>

namespace ddprun::test {

/// What each rank threw; empty for a rank that returned.
template <class Fn>
std::vector<std::string> errors_of_ranks(int n, Fn fn) {
  std::vector<std::string> errors(static_cast<std::size_t>(n));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < n; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        fn(rank);
      } catch (const std::exception& e) {
        errors[static_cast<std::size_t>(rank)] = e.what();
      }
    });
  }
  threads.clear();  // joins
  return errors;
}

template <class Fn>
void run_ranks(int n, Fn fn) {
  const auto errors = errors_of_ranks(n, fn);
  for (int rank = 0; rank < n; ++rank) {
    const std::string& what = errors[static_cast<std::size_t>(rank)];
    if (!what.empty()) throw RemoteError(rank, "rank " + std::to_string(rank) + ": " + what);
  }
}

}  // namespace ddprun::test
