// SPDX-License-Identifier: MIT
// What ranks tell each other through the store before they meet, so that ranks that do not fit
// together all fail with the same text.
#pragma once

#include <ddprun/deadline.h>
#include <ddprun/store.h>

#include <chrono>
#include <string>
#include <vector>

namespace ddprun {

struct Hello {
  std::string version;  // of ddprun
  std::string size;     // of the group
  std::string backend;
  std::string machine;   // boot, network namespace, user: equal when memory can be shared
  std::string hostname;  // for people
  std::string address;   // how the backend reaches this rank
  std::string cores;     // which it may run on: a hexadecimal digit for four, lowest core first

  static Hello of_this_process(int size, std::string backend, std::string address);
};

/// Publishes one's own and returns all, by rank.
/// Throws: UsageError when a rank differs from rank 0 in version, size or backend, or when somebody
///         else is this rank already; TimeoutError naming the ranks that never arrived.
std::vector<Hello> exchange_hellos(Store& store, int rank, const Hello& own,
                                   std::chrono::milliseconds timeout, Deadline deadline);

/// How many cores all ranks together may use.
int count_cores(const std::vector<Hello>& hellos);

}  // namespace ddprun
