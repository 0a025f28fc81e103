// SPDX-License-Identifier: MIT
// WorkerEnv: what is written is read back, and what contradicts itself is refused in words.
#include <doctest/doctest.h>

#include <ddprun/error.h>
#include <ddprun/worker_env.h>

#include "support/scoped_env.h"

using namespace ddprun;
using ddprun::test::ScopedEnv;

TEST_SUITE("base") {
  TEST_CASE("WorkerEnv: absent when RANK is not set") {
    const ScopedEnv scope({{"RANK", std::nullopt}, {"WORLD_SIZE", "4"}});
    CHECK_FALSE(WorkerEnv::from_environment().has_value());
  }

  TEST_CASE("WorkerEnv: what variables() writes, from_environment() reads") {
    WorkerEnv env;
    env.rank = 3;
    env.local_rank = 1;
    env.world_size = 4;
    env.local_world_size = 2;
    env.node_rank = 1;
    env.node_count = 2;
    env.role = "trainer";
    env.master_addr = "10.0.0.7";
    env.master_port = 1234;
    env.restart_count = 2;
    env.max_restarts = 5;
    env.run_id = "job-7";
    env.agent_store = true;
    env.error_file = "/x/error.json";
    std::map<std::string, std::optional<std::string>> set;
    for (const auto& [name, value] : env.variables()) set[name] = value;
    const ScopedEnv scope(set);
    const auto read = WorkerEnv::from_environment();
    REQUIRE(read.has_value());
    CHECK(read->variables() == env.variables());
  }

  TEST_CASE("WorkerEnv: a wrong variable is named with its value") {
    const auto refuses = [](const char* rank, std::optional<std::string> world, const char* text) {
      const ScopedEnv scope({{"RANK", rank}, {"WORLD_SIZE", world}, {"LOCAL_RANK", std::nullopt},
                             {"LOCAL_WORLD_SIZE", std::nullopt}});
      CHECK_THROWS_WITH_AS(WorkerEnv::from_environment(), doctest::Contains(text), UsageError);
    };
    refuses("0", std::nullopt, "WORLD_SIZE is not set");
    refuses("4", "4", "RANK=4 must be less than WORLD_SIZE=4");
    refuses("x", "4", "RANK='x'");
    refuses("-1", "4", "RANK='-1'");
    refuses("0", "99999999999", "WORLD_SIZE='99999999999'");
    refuses("", "4", "RANK=''");
  }
}
