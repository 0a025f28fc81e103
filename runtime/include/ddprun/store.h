// SPDX-License-Identifier: MIT
// A small shared key-value map through which ranks find each other. The meaning of every operation
// is PyTorch's: https://docs.pytorch.org/docs/stable/distributed.html#distributed-key-value-store
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddprun/deadline.h>
#include <ddprun/export.h>

namespace ddprun {

/// Units:   keys and values are bytes; any byte may occur, also NUL.
/// Threads: every call may come from any thread.
/// Throws:  TimeoutError naming the keys that are still missing (64 at most), the store and the time
///          waited; ConnectionError when the server cannot be reached or went away; UsageError for a
///          key or value over the store's limits.
class DDPRUN_API Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  virtual void set(std::string_view key, std::string_view value) = 0;
  /// Waits for the key, then returns its value.
  virtual std::string get(std::string_view key, Deadline deadline) = 0;
  /// Does not wait; empty when the key does not exist.
  virtual std::optional<std::string> try_get(std::string_view key) = 0;
  /// Adds to a counter and returns the sum; a missing key counts as 0, so add(key, 0) reads one.
  /// Throws: UsageError when the key holds something that is not a number.
  virtual std::int64_t add(std::string_view key, std::int64_t delta) = 0;
  /// Stores `desired` when the key holds `expected`, or when it is missing and `expected` is empty.
  /// Returns what the key holds afterwards; `expected` itself when the key is missing and was not
  /// stored.
  virtual std::string compare_set(std::string_view key, std::string_view expected,
                                  std::string_view desired) = 0;
  /// Adds bytes to the end of a value; a missing key counts as empty.
  virtual void append(std::string_view key, std::string_view tail) = 0;
  /// Returns whether the key existed.
  virtual bool erase(std::string_view key) = 0;
  /// Returns whether all keys exist; true for none.
  virtual bool check(std::span<const std::string> keys) = 0;
  /// Waits until all keys exist.
  virtual void wait(std::span<const std::string> keys, Deadline deadline) = 0;
  /// Waits for all keys, then returns their values in order.
  virtual std::vector<std::string> multi_get(std::span<const std::string> keys,
                                             Deadline deadline) = 0;
  virtual void multi_set(std::span<const std::pair<std::string, std::string>> entries) = 0;
  /// Number of keys in the whole store, whatever prefix this view of it has; the launchers' own are
  /// not counted.
  virtual std::int64_t num_keys() = 0;
};

}  // namespace ddprun
