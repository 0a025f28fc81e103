// SPDX-License-Identifier: MIT
// StoreMap: values, the launchers' part, and who is released when.
#include "store/store_map.h"

#include <doctest/doctest.h>

#include "store/wire.h"

using namespace ddprun;
using Keys = std::vector<std::string>;
using Ids = std::vector<StoreMap::WaiterId>;

TEST_SUITE("store") {
  TEST_CASE("StoreMap: add wraps past the largest number") {
    StoreMap map;
    CHECK(map.add("n", INT64_MAX) == INT64_MAX);
    CHECK(map.add("n", 1) == INT64_MIN);
    CHECK(*map.find("n") == "-9223372036854775808");
  }

  TEST_CASE("StoreMap: add to a text changes nothing") {
    StoreMap map;
    map.set("n", "abc");
    CHECK_FALSE(map.add("n", 1).has_value());
    CHECK(*map.find("n") == "abc");
  }

  TEST_CASE("StoreMap: append stops at the limit of a value") {
    StoreMap map;
    map.set("k", std::string(kMaxValueBytes - 1, 'v'));
    CHECK(map.append("k", "a"));
    CHECK_FALSE(map.append("k", "b"));
    CHECK(map.find("k")->size() == kMaxValueBytes);
  }

  TEST_CASE("StoreMap: a waiter is released when the last missing key is created") {
    StoreMap map;
    map.set("a", "");
    CHECK_FALSE(map.wait(7, Keys{"a", "b", "c", "b"}));
    map.set("b", "");
    CHECK(map.take_released().empty());
    map.set("c", "");
    CHECK(map.take_released() == Ids{7});
    map.set("b", "again");
    CHECK(map.take_released().empty());
  }

  TEST_CASE("StoreMap: keys that exist need no wait") {
    StoreMap map;
    map.set("a", "");
    CHECK(map.wait(1, Keys{"a", "a"}));
    CHECK(map.wait(1, Keys{}));
    CHECK(map.take_released().empty());
  }

  TEST_CASE("StoreMap: every operation that creates a key releases all its waiters") {
    StoreMap map;
    const auto released_by = [&](auto create) {
      map.erase("k");
      CHECK_FALSE(map.wait(1, Keys{"k"}));
      CHECK_FALSE(map.wait(2, Keys{"k"}));
      create();
      return map.take_released();
    };
    CHECK(released_by([&] { map.set("k", ""); }) == Ids{1, 2});
    CHECK(released_by([&] { map.add("k", 1); }) == Ids{1, 2});
    CHECK(released_by([&] { map.append("k", "x"); }) == Ids{1, 2});
    CHECK(released_by([&] { map.compare_set("k", "", "x"); }) == Ids{1, 2});
    CHECK(released_by([&] { map.compare_set("k", "guess", "x"); }).empty());
    map.cancel_wait(1);
    map.cancel_wait(2);
    CHECK(released_by([&] { map.erase("k"); }).empty());
  }

  TEST_CASE("StoreMap: a key erased in between is not waited for again") {
    StoreMap map;
    CHECK_FALSE(map.wait(1, Keys{"a", "b"}));
    map.set("a", "");
    map.erase("a");
    map.set("b", "");
    CHECK(map.take_released() == Ids{1});
  }

  TEST_CASE("StoreMap: a cancelled wait is not released") {
    StoreMap map;
    CHECK_FALSE(map.wait(1, Keys{"a", "b"}));
    CHECK_FALSE(map.wait(2, Keys{"a"}));
    map.set("b", "");
    map.cancel_wait(1);
    map.cancel_wait(9);  // waits for nothing
    map.set("a", "");
    CHECK(map.take_released() == Ids{2});
  }

  TEST_CASE("StoreMap: a new wait replaces the old one of the same waiter") {
    StoreMap map;
    CHECK_FALSE(map.wait(1, Keys{"a"}));
    CHECK_FALSE(map.wait(1, Keys{"b"}));
    map.set("a", "");
    CHECK(map.take_released().empty());
    map.set("b", "");
    CHECK(map.take_released() == Ids{1});
  }

  TEST_CASE("StoreMap: the launchers' keys are not counted and outlive an attempt") {
    StoreMap map;
    map.set("/ddprun/round", "1");
    map.set("/ddprun", "a worker's");
    map.set("init/", "4");
    CHECK(map.num_keys() == 2);
    map.drop_worker_keys();
    CHECK(map.num_keys() == 0);
    CHECK(map.find("init/") == nullptr);
    CHECK(map.find("/ddprun") == nullptr);
    REQUIRE(map.find("/ddprun/round") != nullptr);
    CHECK(*map.find("/ddprun/round") == "1");
  }

  TEST_CASE("StoreMap: a watcher sees every change until it is forgotten") {
    StoreMap map;
    map.watch(3, "k");
    map.set("k", "1");
    map.add("k", 1);
    map.append("k", "0");
    map.compare_set("k", "guess", "x");
    map.erase("k");
    map.set("other", "");
    const auto changes = map.take_changes();
    REQUIRE(changes.size() == 4);
    CHECK(changes[0].kind == StoreMap::ChangeKind::created);
    CHECK(changes[1].before == "1");
    CHECK(changes[1].after == "2");
    CHECK(changes[2].after == "20");
    CHECK(changes[3].kind == StoreMap::ChangeKind::deleted);
    CHECK(changes[3].before == "20");
    map.forget(3);
    map.set("k", "1");
    CHECK(map.take_changes().empty());
  }
}
