// SPDX-License-Identifier: MIT
// record: what it leaves for the launcher, and when what a rank prints can be read.
#include <ddprun/error.h>
#include <ddprun/record.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/temp_dir.h"

using namespace ddprun;

namespace {

nlohmann::json record_of(const TrainFn& fn) {
  const test::TempDir dir;
  WorkerEnv env;
  env.error_file = dir.path() / "error.json";
  CHECK(record(fn, env) == 1);
  return nlohmann::json::parse(std::ifstream(env.error_file))["message"];
}

}  // namespace

TEST_SUITE("base") {
  TEST_CASE("record: an exception becomes its type and text, and the code 1") {
    const auto message = record_of([](const WorkerEnv&) -> int { throw UsageError("bad device"); });
    CHECK(message["message"] == "ddprun::UsageError: bad device");
    CHECK_FALSE(message["extraInfo"].contains("remote_rank"));
  }

  TEST_CASE("record: an error that another rank caused names that rank") {
    const auto message =
        record_of([](const WorkerEnv&) -> int { throw RemoteError(3, "rank 3 has left"); });
    CHECK(message["extraInfo"]["remote_rank"] == "3");
  }

  TEST_CASE("record: a line is out when it is printed, though stdout is a pipe") {
    int output[2];
    int release[2];
    REQUIRE(::pipe(output) == 0);
    REQUIRE(::pipe(release) == 0);
    std::fflush(stdout);  // the child has a copy of what is not out yet
    const pid_t child = ::fork();
    if (child == 0) {
      ::dup2(output[1], STDOUT_FILENO);
      ::close(release[1]);
      const int code = record(
          [&](const WorkerEnv&) {
            std::printf("started\n");
            char byte = 0;
            return static_cast<int>(::read(release[0], &byte, 1));
          },
          {});
      ::_exit(code);
    }
    ::close(output[1]);
    pollfd ready = {output[0], POLLIN, 0};
    CHECK(::poll(&ready, 1, 10'000) == 1);
    char text[64] = {};
    CHECK(::read(output[0], text, sizeof(text) - 1) > 0);
    CHECK(std::string(text) == "started\n");
    ::close(release[1]);
    int status = -1;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
    ::close(output[0]);
    ::close(release[0]);
  }
}
