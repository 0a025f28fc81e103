// SPDX-License-Identifier: MIT
// Nothing survives: descendants of workers, whether ddprun ends or is killed.
#include <csignal>
#include <random>
#include <thread>

#include <doctest/doctest.h>

#include "support/launcher.h"

using namespace ddprun::test;
using namespace std::chrono_literals;

TEST_SUITE("launcher") {
  TEST_CASE("ddprun: a descendant that holds the pipe does not hold the job") {
    for (const char* kind : {"leave:hold", "leave:stubborn", "leave:daemon"}) {
      CAPTURE(kind);
      const Marked marked;
      Program program(launch({"--nproc_per_node=2"}, {kind, "out:before\\n"}));
      CHECK(program.wait(15s) == 0);
      CHECK(count(program.out(), "]: before\n") == 2);
      CHECK(marked.processes().empty());
      if (std::string_view(kind) == "leave:daemon") continue;  // it has left the session
      CHECK(count(program.err(), "[ddprun] rank 1 left 1 process behind (pid ") == 1);
      CHECK(count(program.err(), ", worker); ending it\n") == 2);
    }
  }

  TEST_CASE("ddprun: a wrapper's child is stopped with it, politely, and has the grace") {
    // The wrapper ends by TERM at once; its child answers TERM with words.
    const Marked marked;
    Program program({DDPRUN_PROGRAM, "--nproc_per_node=2", "/bin/sh", "-c",
                     "\"$0\" exit_on:15 'out:ready\\n' wait & wait $!", DDPRUN_WORKER});
    REQUIRE(program.wait_for("ready", 2));
    program.kill(SIGTERM);
    CHECK(program.wait() == 143);
    CHECK(count(program.out(), "]: got 15\n") == 2);
    CHECK(marked.processes().empty());
  }

  TEST_CASE("ddprun: kill -9 leaves no worker and no descendant") {
    const int rounds = long_tests() ? 50 : 4;
    for (int round = 0; round < rounds; ++round) {
      CAPTURE(round);
      const Marked marked;
      Program program(launch(
          {"--nproc_per_node=2"},
          {"leave:hold", "leave:stubborn", "leave:daemon", "ignore:15", "out:ready\\n", "wait"}));
      REQUIRE(program.wait_for("ready", 2));
      CHECK(marked.processes().size() >= 8);
      program.kill(SIGKILL);
      CHECK(program.wait() == 137);
      CHECK(marked.gone_within(2s));
    }
  }

  TEST_CASE("ddprun: kill -9 of one that runs others leaves nothing of them") {
    for (int round = 0; round < 3; ++round) {
      CAPTURE(round);
      const Marked marked;
      Program program({DDPRUN_PROGRAM, "--nproc_per_node=2", DDPRUN_PROGRAM, "--nproc_per_node=2",
                       "--master_port=0", DDPRUN_WORKER, "leave:hold", "leave:daemon",
                       "out:ready\\n", "wait"});
      REQUIRE(program.wait_for("ready", 4));
      program.kill(SIGKILL);
      CHECK(program.wait() == 137);
      CHECK(marked.gone_within(3s));
    }
  }

  TEST_CASE("ddprun: the token of a job is found among those around it, and only whole") {
    Program program({"/usr/bin/env", "-i", "X=DDPRUN_JOB=a", "DDPRUN_JOB=a1:b2:c3", "Y=e5",
                     DDPRUN_WORKER, "out:ready\\n", "wait"});
    REQUIRE(program.wait_for("ready"));
    for (const char* token : {"a1", "b2", "c3"})
      CHECK(ddprun::environment_lists(program.pid(), "DDPRUN_JOB=", token));
    for (const char* token : {"a", "b", "2", "c", "c33", "a1:b2", "e5", ""})
      CHECK_FALSE(ddprun::environment_lists(program.pid(), "DDPRUN_JOB=", token));
  }

  TEST_CASE("ddprun: a stopped reaper holds neither the report nor the end") {
    Program program(
        {DDPRUN_PROGRAM, "/bin/sh", "-c",
         "for p in $(cat /proc/$PPID/task/*/children); do "
         "[ \"$(cat /proc/$p/comm)\" = ddprun-reaper ] && kill -STOP $p; done; exit 4"});
    CHECK(program.wait(10s) == 4);
    CHECK(count(program.err(), "first failure: rank 0") == 1);
  }

  TEST_CASE("ddprun: kill -9 at any moment of the start leaves nothing") {
    const int rounds = long_tests() ? 2000 : 60;
    std::mt19937 random(4711);
    for (int round = 0; round < rounds; ++round) {
      CAPTURE(round);
      const Marked marked;
      Program program(launch({"--nproc_per_node=2"}, {"leave:hold", "wait"}));
      timespec moment = {0, static_cast<long>(random() % 8'000'000)};
      ::nanosleep(&moment, nullptr);  // the moment is the test
      program.kill(SIGKILL);
      program.stop_reading();
      program.wait();
      REQUIRE(marked.gone_within(5s));
    }
  }

  TEST_CASE("ddprun: no zombie stays while it runs") {
    const Marked marked;
    Program program(launch({"--nproc_per_node=4"}, {"0@out:ready\\n", "0@wait"}));
    REQUIRE(program.wait_for("ready"));
    const auto has_zombies = [&] {
      const std::string pid = std::to_string(program.pid());
      std::ifstream children("/proc/" + pid + "/task/" + pid + "/children");
      for (int child = 0; children >> child;)
        if (!ddprun::is_alive(child)) return true;
      return false;
    };
    const auto deadline = ddprun::Deadline::after(10s);
    while (has_zombies() && !deadline.expired()) std::this_thread::yield();
    CHECK_FALSE(has_zombies());
    program.kill(SIGTERM);
    CHECK(program.wait() == 143);
  }
}
