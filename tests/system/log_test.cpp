// SPDX-License-Identifier: MIT
// Output of ranks: whole lines, one tag each, nothing lost, files byte for byte, and no console or
// disk that stops a worker.
#include <csignal>
#include <thread>

#include <doctest/doctest.h>
#include <sys/mount.h>

#include "support/launcher.h"

using namespace ddprun::test;
using namespace std::chrono_literals;

namespace {

/// Whether `text` holds lines 0..n-1 of each rank, in order and whole, and nothing else.
void check_lines(const std::string& text, int ranks, int n) {
  std::vector<int> next(static_cast<std::size_t>(ranks), 0);
  int wrong = 0;
  for (const std::string& line : split_lines(text)) {
    int tag = -1;
    int rank = -1;
    int number = -1;
    if (std::sscanf(line.c_str(), "[rank%d]: rank %d line %d ", &tag, &rank, &number) != 3 ||
        tag != rank || rank < 0 || rank >= ranks) {
      ++wrong;
      continue;
    }
    int& expected = next[static_cast<std::size_t>(rank)];
    const std::string whole = "[rank" + std::to_string(rank) + "]: rank " + std::to_string(rank) +
                              " line " + std::to_string(expected) + " " +
                              std::string(static_cast<std::size_t>(expected % 97), '.');
    if (line != whole) ++wrong;
    expected = number + 1;
  }
  CHECK(wrong == 0);
  for (const int count : next) CHECK(count == n);
}

}  // namespace

TEST_SUITE("launcher") {
  TEST_CASE("Logs: 8 ranks x 2000 lines, none lost, none mixed") {
    const int rounds = long_tests() ? 100 : 3;
    for (int round = 0; round < rounds; ++round) {
      CAPTURE(round);
      Program program(launch({"--nproc_per_node=8"}, {"lines:2000", "errlines:200"}));
      CHECK(program.wait() == 0);
      check_lines(program.out(), 8, 2000);
      check_lines(program.err(), 8, 200);
    }
  }

  TEST_CASE("Logs: what a dying rank wrote last is there") {
    const int rounds = long_tests() ? 200 : 3;
    for (int round = 0; round < rounds; ++round) {
      CAPTURE(round);
      const TempDir dir;
      Program program(launch({"--nproc_per_node=8", "--log_dir=" + dir.path().string()},
                             {"lines:500", "2@raise:6", "exit:5"}));
      const int code = program.wait();
      CHECK((code == 5 || code == 134));
      // The first to fail has written everything; the others may have been stopped in the middle.
      const auto at = program.err().rfind("first failure: rank ");
      const int first = std::atoi(program.err().c_str() + at + 20);
      const std::string rank = std::to_string(first);
      CHECK(count(program.out(), "[rank" + rank + "]: ") == 500);
      const auto log = only_entry(dir.path()) / "attempt_0" / rank / "stdout.log";
      CHECK(split_lines(read_file(log)).size() == 500);
      CHECK(count(program.err(), (log.parent_path() / "stderr.log").string()) == 1);
    }
  }

  TEST_CASE("Logs: a rank that ended while the console was full is read to its end") {
    // Rank 0 fills the console and waits; what rank 1 writes then stays in its pipe when it ends.
    const Marked marked;
    Program program(launch({"--nproc_per_node=2"},
                           {"0@lines:20000", "1@pause:300", "1@lines:500", "1@err:done\\n"}));
    REQUIRE(program.wait_for_err("]: done\n", 1));
    const auto deadline = ddprun::Deadline::after(20s);
    while (marked.processes().size() > 3 && !deadline.expired()) std::this_thread::yield();
    CHECK(marked.processes().size() == 3);  // ddprun, its reaper and rank 0
    CHECK(program.wait() == 0);
    CHECK(count(program.out(), "[rank0]: ") == 20000);
    CHECK(count(program.out(), "[rank1]: ") == 500);
  }

  TEST_CASE("Logs: with an exit that waits for all, every rank's lines are there") {
    const TempDir dir;
    Program program(launch({"--nproc_per_node=8", "--log_dir=" + dir.path().string()},
                           {"lines:500", "errlines:100"}));
    CHECK(program.wait() == 0);
    check_lines(program.out(), 8, 500);
    for (int rank = 0; rank < 8; ++rank) {
      const auto log = only_entry(dir.path()) / "attempt_0" / std::to_string(rank);
      CHECK(split_lines(read_file(log / "stdout.log")).size() == 500);
      CHECK(split_lines(read_file(log / "stderr.log")).size() == 100);
      CHECK((std::filesystem::status(log / "stdout.log").permissions() &
             std::filesystem::perms::all) == std::filesystem::perms(0600));
    }
  }

  TEST_CASE("Logs: a line in two writes is one line with one tag, and the last gets its end") {
    const TempDir dir;
    std::vector<std::string> steps;
    for (int i = 0; i < 10; ++i) {
      steps.emplace_back("out:abc");
      steps.emplace_back("pause:20");
      steps.emplace_back("out:def\\n");
    }
    steps.emplace_back("out:tail");
    Program program(launch({"--nproc_per_node=4", "--log_dir=" + dir.path().string()}, steps));
    CHECK(program.wait() == 0);
    int whole = 0;
    int tails = 0;
    const auto lines = split_lines(program.out());
    for (const std::string& line : lines) {
      whole += line.ends_with("]: abcdef");
      tails += line.ends_with("]: tail");
      CHECK(count(line, "[rank") == 1);
    }
    CHECK(whole == 40);
    CHECK(tails == 4);
    CHECK(lines.size() == 44);
    CHECK(program.out().ends_with("tail\n"));
    const auto log = only_entry(dir.path()) / "attempt_0" / "3" / "stdout.log";
    CHECK(read_file(log).ends_with("abcdef\ntail"));
  }

  TEST_CASE("Logs: bytes that are no text pass through") {
    const TempDir dir;
    Program program(launch({"--nproc_per_node=2", "--log_dir=" + dir.path().string()},
                           {"out:before\\n\\x\\0\\x\\n", "out:\xe2", "pause:10", "out:\x82",
                            "pause:10", "out:\xac\\n", "lines:100"}));
    CHECK(program.wait() == 0);
    CHECK(count(program.out(), "]: before\n") == 2);
    CHECK(count(program.out(), "]: \xe2\x82\xac\n") == 2);
    CHECK(count(program.out(), " line ") == 200);
    const auto log = only_entry(dir.path()) / "attempt_0" / "1" / "stdout.log";
    CHECK(read_file(log).starts_with(std::string("before\n\xff\0\xff\n\xe2\x82\xac\nrank 1", 21)));
  }

  TEST_CASE("Logs: progress is shown while it is made, a prompt too") {
    Program program(launch({"--nproc_per_node=2"}, {"out:\\r 1%", "out:\\r 2%", "wait"}));
    CHECK(program.wait_for("]:  1%\r", 2, 5s));
    CHECK(program.wait_for("]:  2%", 2, 5s));
    program.kill(SIGTERM);
    CHECK(program.wait() == 143);
  }

  TEST_CASE("Logs: a line of 16 MiB stays in pieces, other ranks' lines begin anew") {
    Program program(launch({"--nproc_per_node=2"}, {"0@long:256", "0@out:\\n", "1@lines:2000"}));
    CHECK(program.wait() == 0);
    std::size_t x = 0;
    std::string others;
    for (const std::string& line : split_lines(program.out())) {
      if (!line.starts_with("[rank0]: ")) {
        others += line + "\n";
        continue;
      }
      x += count(line, "x");
      CHECK(line.size() == 9 + count(line, "x"));
    }
    CHECK(x == 256 * 65536);
    std::size_t numbered = 0;
    for (const std::string& line : split_lines(others)) numbered += line.starts_with("[rank1]: ");
    CHECK(numbered == 2000);
  }

  TEST_CASE("Logs: one rank passes through untagged") {
    Program program(launch({}, {"out:a", "err:b"}));
    CHECK(program.wait() == 0);
    CHECK(program.out() == "a");
    CHECK(program.err() == "b");
  }

  TEST_CASE("Logs: redirects take a stream off the console, tee puts it back") {
    const TempDir dir;
    Program program(launch({"--nproc_per_node=2", "--log_dir=" + dir.path().string(),
                            "--redirects=0:1,1:3", "--tee=1:2"},
                           {"out:to out\\n", "err:to err\\n"}));
    CHECK(program.wait() == 0);
    CHECK(program.out().empty());
    CHECK(count(program.err(), "]: to err\n") == 2);
    CHECK(read_file(only_entry(dir.path()) / "attempt_0" / "0" / "stdout.log") == "to out\n");
  }

  TEST_CASE("Logs: a console that is full or closed stops nothing, and is said once") {
    const ddprun::UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
    Program program(launch({"--nproc_per_node=2"}, {"lines:5000", "0@exit:4"}),
                    {.out = full.get()});
    CHECK(program.wait() == 4);
    CHECK(count(program.err(), "stdout takes nothing any more (No space left on device)") == 1);

    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    ddprun::UniqueFd write_end(ends[1]);
    ::close(ends[0]);
    Program closed(launch({"--nproc_per_node=2"}, {"lines:5000"}), {.out = write_end.get()});
    CHECK(closed.wait() == 0);
    CHECK(count(closed.err(), "stdout takes nothing any more (Broken pipe)") == 1);

    Program silent(launch({"--nproc_per_node=2"}, {"lines:5000", "errlines:5000", "0@exit:4"}),
                   {.out = write_end.get(), .err = write_end.get()});
    CHECK(silent.wait() == 4);
  }

  TEST_CASE("Logs: a console that nobody reads stops no worker for longer than 5 s") {
    const TempDir dir;
    Program program(launch({"--nproc_per_node=2", "--log_dir=" + dir.path().string()},
                           {"lines:20000", "err:done\\n"}));
    CHECK(program.wait_for_err("]: done\n", 2));
    const auto log = only_entry(dir.path()) / "attempt_0" / "1" / "stdout.log";
    CHECK(split_lines(read_file(log)).size() == 20000);
    CHECK(program.wait() == 0);
  }

  TEST_CASE("Logs: a full disk is said once per file, and the console has all") {
    const TempDir dir;
    if (::mount("none", dir.path().c_str(), "tmpfs", 0, "size=256k") != 0) {
      MESSAGE("left out: no right to mount");
      return;
    }
    Program program(
        launch({"--nproc_per_node=2", "--log_dir=" + dir.path().string()}, {"lines:5000"}));
    CHECK(program.wait() == 0);
    check_lines(program.out(), 2, 5000);
    CHECK(count(program.err(), "No space left on device") == 2);
    CHECK(count(program.err(), "warning: rank 1: ") == 1);
    ::umount(dir.path().c_str());
  }

  TEST_CASE("Logs: two runs at once share no file") {
    const TempDir dir;
    const auto words = launch(
        {"--nproc_per_node=2", "--rdzv_id=same", "--log_dir=" + dir.path().string()}, {"lines:10"});
    Program first(words);
    Program second(words);
    CHECK(first.wait() == 0);
    CHECK(second.wait() == 0);
    int runs = 0;
    for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
      ++runs;
      CHECK(split_lines(read_file(entry.path() / "attempt_0" / "1" / "stdout.log")).size() == 10);
    }
    CHECK(runs == 2);
  }

  TEST_CASE("ddprun: a limit of file size ends a log file, not the job") {
    const TempDir dir;
    Program program({"/bin/sh", "-c", "ulimit -f 8; exec \"$0\" \"$@\"", DDPRUN_PROGRAM,
                     "--log_dir", dir.path(), DDPRUN_WORKER, "lines:1000", "exit:3"});
    CHECK(program.wait() == 3);
    CHECK(count(program.err(), "stdout.log: File too large; the file ends here") == 1);
  }

  TEST_CASE("ddprun: a console that is a file and full is said once") {
    const TempDir dir;
    const std::string path = dir.path() / "console";
    Program program({"/bin/sh", "-c", "ulimit -f 8; file=$1; shift; exec \"$@\" >\"$file\"", "sh",
                     path, DDPRUN_PROGRAM, "--nproc_per_node=2", DDPRUN_WORKER, "lines:1000",
                     "exit:3"});
    CHECK(program.wait() == 3);
    CHECK(count(program.err(), "warning: stdout takes nothing any more (File too large)") == 1);
    CHECK(count(program.err(), "first failure: rank") == 1);
  }

  TEST_CASE("ddprun: workers get the disposition of SIGXFSZ that ddprun found") {
    Program program(launch({}, {"raise:25"}));
    CHECK(program.wait() == 128 + SIGXFSZ);
    Program shell({DDPRUN_PROGRAM, "/bin/sh", "-c", "grep SigIgn /proc/$$/status"});
    CHECK(shell.wait() == 0);
    CHECK((std::stoull(shell.out().substr(8), nullptr, 16) >> (SIGXFSZ - 1) & 1U) == 0);
  }
}
