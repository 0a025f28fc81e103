// SPDX-License-Identifier: MIT
// What a store holds: keys with their values, and who waits for or watches which key. No sockets,
// no locks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ddprun {

/// Two maps behind one interface. Keys that begin with /ddprun/ belong to the launchers: they are
/// not counted and outlive an attempt. All others are the workers'.
/// Threads: not thread-safe.
class StoreMap {
 public:
  using WaiterId = std::uint64_t;

  enum class ChangeKind : std::uint8_t { updated = 0, created = 1, deleted = 2 };  // as on the wire
  struct Change {
    WaiterId watcher;
    ChangeKind kind;
    std::string key;
    std::string before;
    std::string after;
  };

  static bool is_launcher_key(std::string_view key);

  /// Null when the key does not exist; valid until the next change.
  const std::string* find(std::string_view key) const;
  bool contains_all(std::span<const std::string> keys) const;
  std::int64_t num_keys() const;

  void set(std::string_view key, std::string value);
  /// The sum; empty when the key holds no number, which then stays. Wraps past the largest.
  std::optional<std::int64_t> add(std::string_view key, std::int64_t delta);
  /// What Store::compare_set returns.
  std::string compare_set(std::string_view key, std::string_view expected, std::string desired);
  /// False when the value would grow over the limit; it then stays.
  bool append(std::string_view key, std::string_view tail);
  bool erase(std::string_view key);
  void drop_worker_keys();

  /// True when all keys exist. Else the waiter is counted in for those that are missing now and is
  /// among take_released() when the last of them has been created; a key erased in between does
  /// not count again. A waiter waits for one set of keys: a new wait replaces the old one.
  bool wait(WaiterId waiter, std::span<const std::string> keys);
  void cancel_wait(WaiterId waiter);
  /// Who has been released since the last call.
  std::vector<WaiterId> take_released();

  /// From now on every change of the key is among take_changes().
  void watch(WaiterId watcher, std::string_view key);
  std::vector<Change> take_changes();
  /// The client is gone: ends its wait and what it watches.
  void forget(WaiterId id);

 private:
  struct TextHash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  template <class T>
  using MapByKey = std::unordered_map<std::string, T, TextHash, std::equal_to<>>;
  struct Wait {
    std::vector<std::string> keys;
    std::size_t missing = 0;
  };

  MapByKey<std::string>& map_of(std::string_view key);
  const MapByKey<std::string>& map_of(std::string_view key) const;
  std::string* find_mutable(std::string_view key);
  void release(std::string_view key);
  void note_change(ChangeKind kind, std::string_view key, std::string_view before,
                   std::string_view after);

  MapByKey<std::string> worker_values_;
  MapByKey<std::string> launcher_values_;
  MapByKey<std::set<WaiterId>> waiters_;
  std::unordered_map<WaiterId, Wait> waits_;
  std::vector<WaiterId> released_;
  MapByKey<std::set<WaiterId>> watchers_;
  std::vector<Change> changes_;
};

}  // namespace ddprun
