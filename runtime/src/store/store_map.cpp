// SPDX-License-Identifier: MIT
// What a store holds; see store_map.h.
#include "store/store_map.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "store/wire.h"

namespace ddprun {

bool StoreMap::is_launcher_key(std::string_view key) { return key.starts_with("/ddprun/"); }

StoreMap::MapByKey<std::string>& StoreMap::map_of(std::string_view key) {
  return is_launcher_key(key) ? launcher_values_ : worker_values_;
}

const StoreMap::MapByKey<std::string>& StoreMap::map_of(std::string_view key) const {
  return is_launcher_key(key) ? launcher_values_ : worker_values_;
}

const std::string* StoreMap::find(std::string_view key) const {
  const auto& map = map_of(key);
  const auto found = map.find(key);
  return found == map.end() ? nullptr : &found->second;
}

std::string* StoreMap::find_mutable(std::string_view key) {
  return const_cast<std::string*>(find(key));
}

bool StoreMap::contains_all(std::span<const std::string> keys) const {
  return std::all_of(keys.begin(), keys.end(),
                     [&](const std::string& key) { return find(key) != nullptr; });
}

std::int64_t StoreMap::num_keys() const { return static_cast<std::int64_t>(worker_values_.size()); }

void StoreMap::set(std::string_view key, std::string value) {
  if (std::string* old = find_mutable(key)) {
    note_change(ChangeKind::updated, key, *old, value);
    *old = std::move(value);
    return;
  }
  note_change(ChangeKind::created, key, {}, value);
  map_of(key).emplace(key, std::move(value));
  release(key);
}

std::optional<std::int64_t> StoreMap::add(std::string_view key, std::int64_t delta) {
  std::int64_t sum = delta;
  if (const std::string* text = find(key)) {
    const auto old = parse_counter(*text);
    if (!old) return std::nullopt;
    sum = static_cast<std::int64_t>(static_cast<std::uint64_t>(*old) +
                                    static_cast<std::uint64_t>(delta));
  }
  set(key, std::to_string(sum));
  return sum;
}

std::string StoreMap::compare_set(std::string_view key, std::string_view expected,
                                  std::string desired) {
  const std::string* old = find(key);
  if (old != nullptr && *old != expected) return *old;
  // PyTorch's rule: a caller cannot tell this from a success with an equal value.
  if (old == nullptr && !expected.empty()) return std::string(expected);
  set(key, desired);
  return desired;
}

bool StoreMap::append(std::string_view key, std::string_view tail) {
  std::string* old = find_mutable(key);
  if (old == nullptr) {
    set(key, std::string(tail));
    return true;
  }
  if (old->size() + tail.size() > kMaxValueBytes) return false;
  const std::string before = watchers_.empty() ? std::string() : *old;
  old->append(tail);
  note_change(ChangeKind::updated, key, before, *old);
  return true;
}

bool StoreMap::erase(std::string_view key) {
  auto& map = map_of(key);
  const auto found = map.find(key);
  if (found == map.end()) return false;
  note_change(ChangeKind::deleted, key, found->second, {});
  map.erase(found);
  return true;
}

void StoreMap::drop_worker_keys() { worker_values_ = {}; }

bool StoreMap::wait(WaiterId waiter, std::span<const std::string> keys) {
  cancel_wait(waiter);
  Wait wait;
  for (const std::string& key : keys) {
    if (find(key) != nullptr || !waiters_[key].insert(waiter).second) continue;
    wait.keys.push_back(key);
  }
  wait.missing = wait.keys.size();
  if (wait.missing == 0) return true;
  waits_[waiter] = std::move(wait);
  return false;
}

void StoreMap::cancel_wait(WaiterId waiter) {
  const auto found = waits_.find(waiter);
  if (found == waits_.end()) return;
  for (const std::string& key : found->second.keys) {
    const auto entry = waiters_.find(key);
    if (entry == waiters_.end()) continue;
    entry->second.erase(waiter);
    if (entry->second.empty()) waiters_.erase(entry);
  }
  waits_.erase(found);
}

std::vector<StoreMap::WaiterId> StoreMap::take_released() { return std::exchange(released_, {}); }

void StoreMap::watch(WaiterId watcher, std::string_view key) {
  watchers_[std::string(key)].insert(watcher);
}

std::vector<StoreMap::Change> StoreMap::take_changes() { return std::exchange(changes_, {}); }

void StoreMap::forget(WaiterId id) {
  cancel_wait(id);
  for (auto entry = watchers_.begin(); entry != watchers_.end();) {
    entry->second.erase(id);
    entry = entry->second.empty() ? watchers_.erase(entry) : std::next(entry);
  }
}

void StoreMap::note_change(ChangeKind kind, std::string_view key, std::string_view before,
                           std::string_view after) {
  const auto entry = watchers_.find(key);
  if (entry == watchers_.end()) return;
  for (const WaiterId watcher : entry->second)
    changes_.push_back({watcher, kind, std::string(key), std::string(before), std::string(after)});
}

/// Called when a key is created; one that exists has no waiters.
void StoreMap::release(std::string_view key) {
  const auto entry = waiters_.find(key);
  if (entry == waiters_.end()) return;
  for (const WaiterId waiter : entry->second) {
    const auto wait = waits_.find(waiter);
    if (--wait->second.missing > 0) continue;
    waits_.erase(wait);
    released_.push_back(waiter);
  }
  waiters_.erase(entry);
}

}  // namespace ddprun
