// SPDX-License-Identifier: MIT
// What every Store does, whatever it is made of.
#include <ddprun/error.h>

#include <atomic>
#include <set>
#include <thread>

#include <doctest/doctest.h>

#include "support/run_ranks.h"
#include "support/stores.h"

using namespace ddprun;
using namespace ddprun::test;
using namespace std::chrono_literals;
using namespace std::string_literals;
using Keys = std::vector<std::string>;

namespace {

std::string message_of_timeout(const std::function<void()>& call) {
  try {
    call();
  } catch (const TimeoutError& e) {
    return e.what();
  }
  return "no TimeoutError";
}

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_SUITE("store") {
  TEST_CASE("Store: get returns what another rank has set") {
    for_each_store([](const OpenStore& open) {
      const auto a = open();
      const auto b = open();
      a->set("k", "value");
      CHECK(b->get("k", soon()) == "value");
      a->set("k", "other");
      CHECK(b->get("k", soon()) == "other");
    });
  }

  TEST_CASE("Store: any byte may be in keys and values, and both may be empty") {
    for_each_store([](const OpenStore& open) {
      const auto store = open();
      std::string every;
      for (int i = 0; i < 256; ++i) every += static_cast<char>(i);
      const Keys keys = {"", "\0"s, "k", "k/", "/k", "k\0"s, "K", every, "cl\u00e9"};
      for (const auto& key : keys) store->set(key, key + every);
      for (const auto& key : keys) CHECK(store->get(key, soon()) == key + every);
      store->set("empty", "");
      CHECK(store->get("empty", soon()).empty());
      CHECK(store->try_get("empty") == "");
    });
  }

  TEST_CASE("Store: a value of 9 MiB comes back unchanged") {
    for_each_store([](const OpenStore& open) {
      std::string value(9 << 20, '\0');
      for (std::size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i * 31 % 251);
      open()->set("big", value);
      CHECK((open()->get("big", soon()) == value));
    });
  }

  TEST_CASE("Store: get waits for the key") {
    for_each_store([](const OpenStore& open) {
      run_ranks(4, [&](int rank) {
        const auto store = open();
        const auto mine = std::to_string(rank);
        const auto next = std::to_string((rank + 1) % 4);
        if (rank != 0) CHECK(store->get(std::to_string(rank - 1), soon()) == "set");
        store->set(mine, "set");
        CHECK(store->get(next, soon()) == "set");
      });
    });
  }

  TEST_CASE("Store: a wait that times out names the missing keys and only these") {
    for_each_store([](const OpenStore& open) {
      const auto store = open();
      store->set("here", "");
      const auto text = message_of_timeout([&] {
        store->wait(Keys{"lost1", "here", "lost2"}, Deadline::after(50ms));
      });
      CHECK(mentions(text, "lost1'"));
      CHECK(mentions(text, "lost2'"));
      CHECK_FALSE(mentions(text, "here"));
      CHECK(mentions(text, "[store] wait:"));
      CHECK(mentions(text, " ms"));
      CHECK(mentions(message_of_timeout([&] { store->get("gone", Deadline::after(1ms)); }),
                     "[store] get:"));
      CHECK(mentions(message_of_timeout([&] {
                       store->multi_get(Keys{"here", "gone"}, Deadline::after(1ms));
                     }),
                     "gone'"));
    });
  }

  TEST_CASE("Store: a deadline of less than a second holds and changes no later call") {
    for_each_store([](const OpenStore& open) {
      const auto store = open();
      const auto start = Deadline::Clock::now();
      CHECK_THROWS_AS(store->wait(Keys{"k"}, Deadline::after(200ms)), TimeoutError);
      const auto took = Deadline::Clock::now() - start;
      CHECK(took >= 200ms);
      CHECK(took < 1s);
      store->set("k", "v");
      CHECK(store->get("k", soon()) == "v");
      CHECK(store->add("n", 3) == 3);
    });
  }

  TEST_CASE("Store: what exists is found even when the deadline has passed") {
    for_each_store([](const OpenStore& open) {
      const auto store = open();
      store->set("k", "v");
      CHECK(store->get("k", Deadline::after(0ms)) == "v");
      store->wait(Keys{"k", "k"}, Deadline::after(0ms));
      CHECK_THROWS_AS(store->get("gone", Deadline::after(0ms)), TimeoutError);
    });
  }

  TEST_CASE("Store: a wait for no keys ends at once") {
    for_each_store([](const OpenStore& open) {
      const auto store = open();
      store->wait({}, soon());
      CHECK(store->check({}));
      CHECK(store->multi_get({}, soon()).empty());
      store->multi_set({});
    });
  }

  TEST_CASE("Store: every operation that creates a key ends waits for it") {
    for_each_store([](const OpenStore& open) {
      const std::vector<std::function<void(Store&)>> creators = {
          [](Store& s) { s.set("k", "1"); }, [](Store& s) { s.add("k", 1); },
          [](Store& s) { s.append("k", "1"); }, [](Store& s) { s.compare_set("k", "", "1"); },
          [](Store& s) {
            s.multi_set(std::vector<std::pair<std::string, std::string>>{{"k", "1"}});
          }};
      const auto store = open();
      for (const auto& create : creators) {
        store->erase("k");
        std::jthread waiter([waiting = open()] { CHECK(waiting->get("k", soon()) == "1"); });
        create(*store);
      }
    });
  }

  TEST_CASE("Store: neither erase nor a compare_set that stores nothing ends a wait") {
    for_each_store([](const OpenStore& open) {
      const auto store = open();
      std::atomic<bool> ended = false;
      std::jthread waiter([&, waiting = open()] {
        waiting->wait(Keys{"k", "go"}, soon());
        ended = true;
      });
      store->set("go", "");
      store->compare_set("k", "guess", "v");
      store->erase("k");
      CHECK_FALSE(ended);
      store->set("k", "");
    });
  }

  TEST_CASE("Store: try_get does not wait") {
    for_each_store([](const OpenStore& open) {
      const auto store = open();
      CHECK_FALSE(store->try_get("k").has_value());
      CHECK_FALSE(store->check(Keys{"k"}));
      store->set("k", "v");
      CHECK(store->try_get("k") == "v");
    });
  }

  TEST_CASE("Store: reading a key that others erase gives its value or nothing") {
    for_each_store([](const OpenStore& open) {
      std::atomic<bool> stop = false;
      std::jthread other([&, store = open()] {
        while (!stop) {
          store->set("k", "v");
          store->erase("k");
        }
      });
      const auto store = open();
      for (int i = 0; i < 200; ++i) CHECK(store->try_get("k").value_or("v") == "v");
      for (int i = 0; i < 5; ++i) CHECK(store->get("k", soon()) == "v");
      stop = true;
    });
  }

  TEST_CASE("Store: add counts from nothing and from a number's text") {
    for_each_store([](const OpenStore& open) {
      const auto store = open();
      CHECK(store->add("n", 5) == 5);
      CHECK(store->add("n", -7) == -2);
      CHECK(store->get("n", soon()) == "-2");
      CHECK(store->add("zero", 0) == 0);
      CHECK(store->get("zero", soon()) == "0");
      store->set("n", " 12abc");
      CHECK(store->add("n", 1) == 13);
      CHECK(store->add("max", INT64_MAX) == INT64_MAX);
      CHECK(store->add("max", 1) == INT64_MIN);
    });
  }

  TEST_CASE("Store: add to a text is the caller's mistake and leaves the store usable") {
    for_each_store([](const OpenStore& open) {
      const auto store = open();
      for (const char* text : {"abc", "", "99999999999999999999"}) {
        store->set("k", text);
        CHECK_THROWS_WITH_AS(store->add("k", 1), doctest::Contains("k'"), UsageError);
        CHECK(store->get("k", soon()) == text);
      }
    });
  }

  TEST_CASE("Store: compare_set stores when the key holds what is expected") {
    for_each_store([](const OpenStore& open) {
      const auto store = open();
      CHECK(store->compare_set("k", "guess", "new") == "guess");
      CHECK_FALSE(store->check(Keys{"k"}));
      CHECK(store->compare_set("k", "", "first") == "first");
      CHECK(store->compare_set("k", "wrong", "x") == "first");
      CHECK(store->compare_set("k", "", "x") == "first");
      CHECK(store->compare_set("k", "first", "second") == "second");
      CHECK(store->get("k", soon()) == "second");
    });
  }

  TEST_CASE("Store: of ranks that compare_set at once, one wins") {
    for_each_store([](const OpenStore& open) {
      std::vector<std::string> answers(6);
      run_ranks(6, [&](int rank) {
        answers[static_cast<std::size_t>(rank)] =
            open()->compare_set("k", "", std::to_string(rank));
      });
      CHECK(std::set(answers.begin(), answers.end()).size() == 1);
    });
  }

  TEST_CASE("Store: append extends, erase says whether the key existed") {
    for_each_store([](const OpenStore& open) {
      const auto store = open();
      store->append("k", "one");
      store->append("k", "\0two"s);
      CHECK(store->get("k", soon()) == "one\0two"s);
      CHECK(store->erase("k"));
      CHECK_FALSE(store->erase("k"));
      CHECK(store->add("k", 1) == 1);
    });
  }

  TEST_CASE("Store: multi_get returns values in the order asked for") {
    for_each_store([](const OpenStore& open) {
      const auto store = open();
      std::vector<std::pair<std::string, std::string>> entries;
      Keys keys;
      Keys values;
      for (int i = 0; i < 3000; ++i) {
        entries.emplace_back("key" + std::to_string(i),
                             std::string(static_cast<std::size_t>(i), 'v'));
        keys.insert(keys.begin(), entries.back().first);
        values.insert(values.begin(), entries.back().second);
      }
      store->multi_set(entries);
      CHECK((open()->multi_get(keys, soon()) == values));
      CHECK(store->multi_get(Keys{"key1", "key1"}, soon()) == Keys{"v", "v"});
      store->multi_set(
          std::vector<std::pair<std::string, std::string>>{{"twice", "first"}, {"twice", "last"}});
      CHECK(store->get("twice", soon()) == "last");
    });
  }

  TEST_CASE("Store: num_keys counts what is there") {
    for_each_store([](const OpenStore& open) {
      const auto store = open();
      const auto before = store->num_keys();
      store->set("a", "");
      store->add("b", 1);
      store->set("a", "again");
      store->compare_set("c", "guess", "x");
      CHECK(store->num_keys() == before + 2);
      store->erase("a");
      CHECK(store->num_keys() == before + 1);
    });
  }

  TEST_CASE("Store: sums of ranks that add at once are all different") {
    for_each_store([](const OpenStore& open) {
      std::vector<std::vector<std::int64_t>> sums(4);
      run_ranks(4, [&](int rank) {
        const auto store = open();
        for (int i = 0; i < 100; ++i)
          sums[static_cast<std::size_t>(rank)].push_back(store->add("n", 1));
      });
      std::set<std::int64_t> all;
      for (const auto& part : sums) all.insert(part.begin(), part.end());
      CHECK(all.size() == 400);
      CHECK(*all.rbegin() == 400);
    });
  }

  TEST_CASE("PrefixStore: views nest outside in") {
    const auto store = make_hash_store();
    with_prefix(with_prefix(store, "b"), "a")->set("k", "v");
    CHECK(store->get("b/a/k", soon()) == "v");
  }
}
