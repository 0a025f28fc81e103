// SPDX-License-Identifier: MIT
// While its workers compute, ddprun does nothing: every wake-up would be taken from them.
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include "support/launcher.h"

using namespace ddprun::test;
using namespace std::chrono_literals;

namespace {

/// How often the threads of a process gave a processor up, or had it taken: each wake-up is one.
long context_switches(int pid) {
  long sum = 0;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);)
      if (const auto at = line.find("ctxt_switches:"); at != std::string::npos)
        sum += std::stol(line.substr(at + 14));
  }
  return sum;
}

}  // namespace

TEST_SUITE("launcher") {
  TEST_CASE("ddprun: wakes up 0 times while its workers are busy and silent") {
    Program program(launch({"--nproc_per_node=2"}, {"out:ready\\n", "wait"}));
    REQUIRE(program.wait_for("ready", 2));
    // What was under way at "ready" comes to rest; then nothing may happen for the rest of the time.
    const auto deadline = ddprun::Deadline::after(20s);
    long before = 0;
    bool idle = false;
    while (!idle && !deadline.expired()) {
      before = context_switches(program.pid());
      std::this_thread::sleep_for(2s);  // the length of the silence that is asked for
      idle = context_switches(program.pid()) == before;
    }
    CHECK(idle);
    CHECK(before > 0);
    program.kill(SIGTERM);
    CHECK(program.wait() == 143);
  }
}
