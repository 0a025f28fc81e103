// SPDX-License-Identifier: MIT
// init_process_group: with a store that rank 0 hosts, with the launcher's, and with none.
#include <ddprun/error.h>

#include <chrono>
#include <string>

#include <doctest/doctest.h>

#include "comm/hello.h"
#include "net/socket.h"
#include "store/tcp_store_server.h"
#include "support/group_of_threads.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

WorkerEnv env_of(int rank, int size, std::uint16_t port) {
  WorkerEnv env;
  env.rank = env.local_rank = rank;
  env.world_size = env.local_world_size = size;
  env.master_port = port;
  return env;
}

std::uint16_t free_port() { return local_port(listen_tcp("127.0.0.1", 0).get()); }

}  // namespace

TEST_SUITE("collectives") {
  TEST_CASE("init_process_group: one rank needs no store") {
    auto group = init_process_group(env_of(0, 1, 1));
    CHECK(group.size() == 1);
    CHECK(group.backend() == "cpu");
    CHECK(group.mean(3) == 3);
  }

  TEST_CASE("init_process_group: rank 0 hosts the store until the others have left") {
    const auto port = free_port();
    const auto start = std::chrono::steady_clock::now();
    run_ranks(3, [&](int rank) {
      auto group = init_process_group(env_of(rank, 3, port), {.timeout = kTestTimeout});
      CHECK(group.mean(rank) == 1.0);
    });
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
    CHECK_NOTHROW(listen_tcp("127.0.0.1", port));  // nobody hosts it any more
  }

  TEST_CASE("init_process_group: under a launcher all are clients, each attempt on its own") {
    const TcpStoreServer server(listen_tcp("127.0.0.1", 0));
    for (const int attempt : {0, 1})
      run_ranks(2, [&](int rank) {
        auto env = env_of(rank, 2, server.port());
        env.agent_store = true;
        env.restart_count = attempt;
        auto group = init_process_group(env, {.timeout = kTestTimeout});
        CHECK(group.mean(rank) == 0.5);
      });
  }

  TEST_CASE("init_process_group: the longest timeout is none, with and without a launcher") {
    const TcpStoreServer server(listen_tcp("127.0.0.1", 0));
    for (const bool agent_store : {true, false}) {
      const auto port = agent_store ? server.port() : free_port();
      run_ranks(2, [&](int rank) {
        auto env = env_of(rank, 2, port);
        env.agent_store = agent_store;
        auto group = init_process_group(env, {.timeout = std::chrono::milliseconds::max()});
        CHECK(group.mean(rank) == 0.5);
      });
    }
  }

  TEST_CASE("init_process_group: a program may make a group, destroy it and make another") {
    const TcpStoreServer server(listen_tcp("127.0.0.1", 0));
    run_ranks(2, [&](int rank) {
      auto env = env_of(rank, 2, server.port());
      env.agent_store = true;
      for (int i = 0; i < 3; ++i) {
        auto group = init_process_group(env, {.timeout = kTestTimeout});
        CHECK(group.mean(rank + i) == 0.5 + i);
      }
    });
  }

  TEST_CASE("init_process_group: a store that is not there is an error that says where") {
    auto env = env_of(1, 2, free_port());
    CHECK_THROWS_WITH_AS(init_process_group(env, {.timeout = std::chrono::milliseconds(200)}),
                         doctest::Contains(std::to_string(env.master_port).c_str()), Error);
  }

  TEST_CASE("set-up: ranks on different machines are refused with their names") {
    const auto store = make_hash_store();
    const auto errors = errors_of_ranks(2, [&](int rank) {
      if (rank == 0) {
        ProcessGroup(store, 0, 2, {.timeout = kTestTimeout});
      } else {
        auto hello = Hello::of_this_process(2, "auto", "nowhere");
        hello.machine = "elsewhere";
        hello.hostname = "node7";
        exchange_hellos(*store, 1, hello, kTestTimeout, Deadline::after(kTestTimeout));
      }
    });
    CHECK_MESSAGE(
        errors[0].find("rank(s) 1 (node7) share no memory with rank 0") != std::string::npos,
        errors[0]);
    CHECK(errors[0].find("several nodes are not supported") != std::string::npos);
  }
}
