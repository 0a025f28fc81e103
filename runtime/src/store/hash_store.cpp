// SPDX-License-Identifier: MIT
// A Store inside one process: a StoreMap behind a mutex; see hash_store.h.
#include <ddprun/error.h>
#include <ddprun/hash_store.h>

#include <condition_variable>
#include <mutex>
#include <type_traits>

#include <fmt/core.h>

#include "store/missing_keys.h"
#include "store/store_map.h"

namespace ddprun {
namespace {

class HashStore final : public Store {
 public:
  void set(std::string_view key, std::string_view value) override {
    change([&] { map_.set(key, std::string(value)); });
  }

  std::string get(std::string_view key, Deadline deadline) override {
    const std::string wanted(key);
    const auto lock = await("get", {&wanted, 1}, deadline);
    return *map_.find(key);
  }

  std::optional<std::string> try_get(std::string_view key) override {
    const std::lock_guard lock(mutex_);
    const std::string* value = map_.find(key);
    return value ? std::optional(*value) : std::nullopt;
  }

  std::int64_t add(std::string_view key, std::int64_t delta) override {
    const auto sum = change([&] { return map_.add(key, delta); });
    if (!sum) throw UsageError(fmt::format("[store] add: key {} holds no number", quote_key(key)));
    return *sum;
  }

  std::string compare_set(std::string_view key, std::string_view expected,
                          std::string_view desired) override {
    return change([&] { return map_.compare_set(key, expected, std::string(desired)); });
  }

  void append(std::string_view key, std::string_view tail) override {
    if (!change([&] { return map_.append(key, tail); }))
      throw UsageError(fmt::format("[store] append: key {} grows too long", quote_key(key)));
  }

  bool erase(std::string_view key) override {
    const std::lock_guard lock(mutex_);
    return map_.erase(key);
  }

  bool check(std::span<const std::string> keys) override {
    const std::lock_guard lock(mutex_);
    return map_.contains_all(keys);
  }

  void wait(std::span<const std::string> keys, Deadline deadline) override {
    await("wait", keys, deadline);
  }

  std::vector<std::string> multi_get(std::span<const std::string> keys,
                                     Deadline deadline) override {
    const auto lock = await("multi_get", keys, deadline);
    std::vector<std::string> values;
    for (const std::string& key : keys) values.push_back(*map_.find(key));
    return values;
  }

  void multi_set(std::span<const std::pair<std::string, std::string>> entries) override {
    change([&] {
      for (const auto& [key, value] : entries) map_.set(key, value);
    });
  }

  std::int64_t num_keys() override {
    const std::lock_guard lock(mutex_);
    return map_.num_keys();
  }

 private:
  template <class Fn>
  std::invoke_result_t<Fn> change(Fn fn) {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
    return fn();
  }

  /// Returns with the lock, so that no key can be erased before it is read.
  std::unique_lock<std::mutex> await(std::string_view operation, std::span<const std::string> keys,
                                     Deadline deadline) {
    const auto start = Deadline::Clock::now();
    std::unique_lock lock(mutex_);
    const auto ready = [&] { return map_.contains_all(keys); };
    while (!ready() && !deadline.expired()) {
      // wait_until(time_point::max()) would overflow.
      changed_.wait_for(lock, deadline.remaining(), ready);
    }
    std::vector<std::string> missing;
    for (const std::string& key : keys)
      if (map_.find(key) == nullptr) missing.push_back(key);
    if (!missing.empty())
      throw_missing(operation, missing, "the store of this process",
                    Deadline::Clock::now() - start);
    return lock;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  StoreMap map_;  // guarded by mutex_
};

}  // namespace

std::shared_ptr<Store> make_hash_store() { return std::make_shared<HashStore>(); }

}  // namespace ddprun
