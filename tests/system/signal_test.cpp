// SPDX-License-Identifier: MIT
// Signals to ddprun: forwarded, then the ladder; some end nothing.
#include <csignal>

#include <doctest/doctest.h>

#include "support/launcher.h"

using namespace ddprun::test;

TEST_SUITE("launcher") {
  TEST_CASE("ddprun: a signal stops the workers and gives 128 + signal, with no failure listed") {
    for (const auto& [signal, name] : std::map<int, std::string>{
             {SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}, {SIGHUP, "SIGHUP"}, {SIGQUIT, "SIGQUIT"}}) {
      CAPTURE(name);
      const Marked marked;
      Program program(launch({"--nproc_per_node=2"}, {"out:ready\\n", "wait"}));
      REQUIRE(program.wait_for("ready", 2));
      program.kill(signal);
      CHECK(program.wait() == 128 + signal);
      CHECK(program.err() == "[ddprun] received " + name + ", stopping 2 workers\n");
      CHECK(marked.processes().empty());
    }
  }

  TEST_CASE(
      "ddprun: the same signal reaches each worker once, and 128 + signal is kept when all "
      "end well") {
    Program program(launch({"--nproc_per_node=2"}, {"exit_on:2", "out:ready\\n", "wait"}));
    REQUIRE(program.wait_for("ready", 2));
    program.kill(SIGINT);
    CHECK(program.wait() == 130);
    CHECK(count(program.out(), "]: got 2\n") == 2);
  }

  TEST_CASE("ddprun: workers that ignore TERM are killed after the grace, in words") {
    const Marked marked;
    Program program(launch({"--nproc_per_node=2", "--shutdown_timeout=1"},
                           {"1@ignore:15", "out:ready\\n", "wait"}));
    REQUIRE(program.wait_for("ready", 2));
    program.kill(SIGTERM);
    CHECK(program.wait() == 143);
    CHECK(count(program.err(), "did not end within 1 s (--shutdown_timeout): rank 1 (pid ") == 1);
    CHECK(marked.processes().empty());
  }

  TEST_CASE("ddprun: after a failure too, workers that ignore TERM are killed after the grace") {
    const Marked marked;
    Program program(launch({"--nproc_per_node=2", "--shutdown_timeout=1"},
                           {"0@ignore:15", "out:ready\\n", "0@wait", "1@exit:6"}));
    CHECK(program.wait() == 6);
    CHECK(marked.processes().empty());
  }

  TEST_CASE("ddprun: a second signal kills at once") {
    for (const int times : {2, 20}) {
      CAPTURE(times);
      const Marked marked;
      Program program(
          launch({"--nproc_per_node=2"}, {"ignore:2", "ignore:15", "out:ready\\n", "wait"}));
      REQUIRE(program.wait_for("ready", 2));
      program.kill(SIGINT);
      REQUIRE(program.wait_for("stopping 2 workers"));
      for (int i = 1; i < times; ++i) program.kill(SIGINT);
      CHECK(program.wait(std::chrono::seconds(10)) == 130);
      CHECK(marked.processes().empty());
    }
  }

  TEST_CASE("ddprun: HUP that was ignored on entry stays ignored, also in the workers") {
    Program program(launch({"--nproc_per_node=2"}, {"out:ready\\n", "wait"}), {.ignore_hup = true});
    REQUIRE(program.wait_for("ready", 2));
    program.kill(SIGHUP);
    program.kill(SIGTERM);
    CHECK(program.wait() == 143);
    CHECK(count(program.err(), "SIGHUP") == 0);
  }

  TEST_CASE("ddprun: USR1 and USR2 are relayed and end nothing") {
    Program program(
        launch({"--nproc_per_node=2"}, {"say_on:10", "say_on:12", "out:ready\\n", "wait"}));
    REQUIRE(program.wait_for("ready", 2));
    program.kill(SIGUSR1);
    REQUIRE(program.wait_for("got 10", 2));
    program.kill(SIGUSR2);
    REQUIRE(program.wait_for("got 12", 2));
    program.kill(SIGTERM);
    CHECK(program.wait() == 143);
  }

  TEST_CASE("ddprun: TSTP stops the workers and ddprun, CONT goes on") {
    Program program(launch({"--nproc_per_node=2"}, {"say_on:10", "out:ready\\n", "wait"}));
    REQUIRE(program.wait_for("ready", 2));
    program.kill(SIGTSTP);
    int status = 0;
    REQUIRE(::waitpid(program.pid(), &status, WUNTRACED) == program.pid());
    CHECK(WIFSTOPPED(status));
    program.kill(SIGCONT);
    program.kill(SIGUSR1);
    REQUIRE(program.wait_for("got 10", 2));
    program.kill(SIGTERM);
    CHECK(program.wait() == 143);
  }

  TEST_CASE("ddprun: INT ends a shell's background children too, which ignore INT") {
    // The pause: dash forgets an INT that comes before it waits for its foreground child.
    const Marked marked;
    Program program({DDPRUN_PROGRAM, "--nproc_per_node=2", "sh", "-c",
                     "sleep 50 & \"$0\" pause:100 'out:ready\\n' wait", DDPRUN_WORKER});
    REQUIRE(program.wait_for("ready", 2));
    program.kill(SIGINT);
    CHECK(program.wait(std::chrono::seconds(10)) == 130);
    CHECK(count(program.err(), "did not end") == 0);
    CHECK(marked.processes().empty());
  }

  TEST_CASE("ddprun: what a stopped rank leaves behind is named when its grace is over") {
    const Marked marked;
    Program program({DDPRUN_PROGRAM, "--nproc_per_node=2", "--shutdown_timeout=1", "sh", "-c",
                     "\"$0\" ignore:2 ignore:15 'out:ready\\n' wait & wait $!", DDPRUN_WORKER});
    REQUIRE(program.wait_for("ready", 2));
    program.kill(SIGTERM);
    CHECK(program.wait() == 143);
    CHECK(count(program.err(), "[ddprun] a process that rank 1 left behind (pid ") == 1);
    CHECK(count(program.err(),
                ", worker) did not end within 1 s (--shutdown_timeout); killing\n") == 2);
    CHECK(count(program.err(), "0 workers") == 0);
    CHECK(marked.processes().empty());
  }
}
