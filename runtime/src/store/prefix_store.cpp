// SPDX-License-Identifier: MIT
// A view of a Store in which every key starts with a prefix; see prefix_store.h.
#include <ddprun/prefix_store.h>

namespace ddprun {
namespace {

class PrefixStore final : public Store {
 public:
  PrefixStore(std::shared_ptr<Store> store, std::string prefix)
      : store_(std::move(store)), prefix_(std::move(prefix) + "/") {}

  void set(std::string_view key, std::string_view value) override { store_->set(full(key), value); }
  std::string get(std::string_view key, Deadline deadline) override {
    return store_->get(full(key), deadline);
  }
  std::optional<std::string> try_get(std::string_view key) override {
    return store_->try_get(full(key));
  }
  std::int64_t add(std::string_view key, std::int64_t delta) override {
    return store_->add(full(key), delta);
  }
  std::string compare_set(std::string_view key, std::string_view expected,
                          std::string_view desired) override {
    return store_->compare_set(full(key), expected, desired);
  }
  void append(std::string_view key, std::string_view tail) override {
    store_->append(full(key), tail);
  }
  bool erase(std::string_view key) override { return store_->erase(full(key)); }
  bool check(std::span<const std::string> keys) override { return store_->check(full(keys)); }
  void wait(std::span<const std::string> keys, Deadline deadline) override {
    store_->wait(full(keys), deadline);
  }
  std::vector<std::string> multi_get(std::span<const std::string> keys,
                                     Deadline deadline) override {
    return store_->multi_get(full(keys), deadline);
  }
  void multi_set(std::span<const std::pair<std::string, std::string>> entries) override {
    std::vector<std::pair<std::string, std::string>> prefixed;
    for (const auto& [key, value] : entries) prefixed.emplace_back(full(key), value);
    store_->multi_set(prefixed);
  }
  std::int64_t num_keys() override { return store_->num_keys(); }

 private:
  std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  std::vector<std::string> full(std::span<const std::string> keys) const {
    std::vector<std::string> prefixed;
    for (const std::string& key : keys) prefixed.push_back(full(key));
    return prefixed;
  }

  const std::shared_ptr<Store> store_;
  const std::string prefix_;
};

}  // namespace

std::shared_ptr<Store> with_prefix(std::shared_ptr<Store> store, std::string prefix) {
  return std::make_shared<PrefixStore>(std::move(store), std::move(prefix));
}

}  // namespace ddprun
