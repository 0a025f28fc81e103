// SPDX-License-Identifier: MIT
// How a job ends: exit codes, the report, restarts, programs that cannot be started.
#include <chrono>
#include <csignal>

#include <doctest/doctest.h>

#include "support/launcher.h"

using namespace ddprun::test;

namespace {

/// The part of stderr from the report of the first failure on.
std::string report_of(const Program& program) {
  const auto at = program.err().rfind("[ddprun] first failure: ");
  return at == std::string::npos ? "" : program.err().substr(at);
}

}  // namespace

TEST_SUITE("launcher") {
  TEST_CASE("ddprun: ends with 0 when all ranks do, and leaves nothing") {
    const Marked marked;
    Program program(launch({"--nproc_per_node=4"}, {"out:hello\\n"}));
    CHECK(program.wait() == 0);
    CHECK(count(program.out(), "]: hello\n") == 4);
    CHECK(program.err().empty());
    CHECK(marked.processes().empty());
  }

  TEST_CASE("ddprun: a rank's code or 128 + signal is the job's, and it is named last") {
    const auto ends = [](const std::string& step, int code, const char* words) {
      CAPTURE(step);
      const Marked marked;
      Program program(launch({"--nproc_per_node=4"},
                             {"2@err:first words\\nlast words\\n", "2@" + step, "!2@wait"}));
      CHECK(program.wait() == code);
      const std::string report = report_of(program);
      CHECK(report.starts_with("[ddprun] first failure: rank 2 (local rank 2, pid "));
      CHECK(count(report, words) == 1);
      CHECK(report.ends_with("    last words\n"));
      CHECK(count(program.err(), "failed too") == 0);  // ddprun stopped the others
      CHECK(marked.processes().empty());
    };
    ends("exit:7", 7, "exit code 7");
    ends("exit:137", 137, "exit code 137");
    ends("raise:6", 134, "signal SIGABRT (6)");
    ends("raise:11", 139, "signal SIGSEGV (11)");
    ends("raise:9", 137, "signal SIGKILL (9)");
  }

  TEST_CASE("ddprun: early success does not hide a later failure") {
    Program program(launch({"--nproc_per_node=3"}, {"0@pause:100", "0@exit:5"}));
    CHECK(program.wait() == 5);
  }

  TEST_CASE("ddprun: an exception's type and text are in the report") {
    const TempDir dir;
    for (const bool files : {false, true}) {
      CAPTURE(files);
      std::vector<std::string> options = {"--nproc_per_node=2"};
      if (files) options.push_back("--log_dir=" + dir.path().string());
      Program program(launch(options, {"1@throw:bad device 73", "wait"}));
      CHECK(program.wait() == 1);
      CHECK(count(report_of(program), "exception: std::runtime_error: bad device 73") == 1);
    }
  }

  TEST_CASE("ddprun: half an error record is no record") {
    Program program(launch({"--nproc_per_node=2"}, {"1@half_a_record", "1@exit:9", "wait"}));
    CHECK(program.wait() == 9);
    CHECK(count(report_of(program), "exit code 9") == 1);
    CHECK(count(report_of(program), "exception") == 0);
  }

  TEST_CASE("ddprun: its own error file receives the first failure's record") {
    const TempDir dir;
    const auto path = dir.path() / "error.json";
    const ScopedEnv scope({{"TORCHELASTIC_ERROR_FILE", path.string()}});
    Program program(launch({"--nproc_per_node=2"}, {"1@throw:told above", "wait"}));
    CHECK(program.wait() == 1);
    CHECK(count(read_file(path), "std::runtime_error: told above") >= 1);
    CHECK(count(read_file(path), "\"errorCode\":1") == 1);
  }

  TEST_CASE("ddprun: failures besides the first are one line for all that are equal, before it") {
    Program program(
        launch({"--nproc_per_node=4"}, {"0@fail_on:15", "3@fail_on:15", "1@exit_on:15",
                                        "out:ready\\n", "!2@wait", "2@pause:200", "2@exit:3"}));
    CHECK(program.wait() == 3);
    const auto others = program.err().find("[ddprun] ranks 0, 3 failed too: exit code 44\n");
    CHECK(others < program.err().rfind("[ddprun] first failure: rank 2 "));
    CHECK(count(program.err(), "failed too") == 1);  // rank 1 ended as it was asked to
  }

  TEST_CASE("ddprun: a rank that fails because of another waits for that one's own end") {
    for (int round = 0; round < 10; ++round) {
      CAPTURE(round);
      const Marked marked;
      Program program(
          launch({"--nproc_per_node=3"}, {"0@blame:1", "0@exit:5", "1@pause:200",
                                          "1@err:bad device 73\\n", "1@exit:9", "2@wait"}));
      CHECK(program.wait() == 9);
      const std::string report = report_of(program);
      CHECK(report.starts_with("[ddprun] first failure: rank 1 (local rank 1, pid "));
      CHECK(report.ends_with("    bad device 73\n"));
      CHECK(count(program.err(),
                  "rank 0 failed: exit code 5; it blames rank 1, which still runs") == 1);
      CHECK(count(program.err(), "rank 1 failed: exit code 9; stopping 1 worker\n") == 1);
      CHECK(count(program.err(), "rank 0 failed too: exit code 5: ddprun::RemoteError: ") == 1);
      CHECK(count(program.err(), "failed too") == 1);  // rank 2 was stopped
      CHECK(marked.processes().empty());
    }
  }

  TEST_CASE("ddprun: a chain of blame ends at the rank that blames nobody who runs") {
    Program program(launch({"--nproc_per_node=4"},
                           {"0@blame:1", "0@exit:5", "1@pause:100", "1@blame:2", "1@exit:6",
                            "2@pause:300", "2@blame:0", "2@exit:7", "wait"}));
    CHECK(program.wait() == 7);
    CHECK(report_of(program).starts_with("[ddprun] first failure: rank 2 "));
    CHECK(count(program.err(), "failed too") == 2);
  }

  TEST_CASE("ddprun: a blamed rank that does not end is waited for a second, all in all") {
    const auto started = std::chrono::steady_clock::now();
    Program program(launch({"--nproc_per_node=2"}, {"0@blame:1", "0@exit:5", "wait"}));
    CHECK(program.wait() == 5);
    CHECK(std::chrono::steady_clock::now() - started < std::chrono::seconds(10));
    CHECK(report_of(program).starts_with("[ddprun] first failure: rank 0 "));
    CHECK(count(program.err(), "rank 1 did not end within 1 s; stopping 1 worker\n") == 1);
    CHECK(count(program.err(), "failed too") == 0);
  }

  TEST_CASE("ddprun: told to stop while it waits for a blamed rank, it stops at once") {
    Program program(
        launch({"--nproc_per_node=2", "--max_restarts=3"}, {"0@blame:1", "0@exit:5", "wait"}));
    REQUIRE(program.wait_for("it blames rank 1"));
    program.kill(SIGINT);
    CHECK(program.wait() == 130);
    CHECK(count(program.err(), "starting all ranks again") == 0);
  }

  TEST_CASE("ddprun: says when the rank that is blamed had ended well") {
    Program program(
        launch({"--nproc_per_node=2"}, {"1@exit:0", "0@pause:300", "0@blame:1", "0@exit:5"}));
    CHECK(program.wait() == 5);
    CHECK(count(report_of(program), "[ddprun]   rank 1 had ended with exit code 0 after 0.") == 1);
    CHECK(count(program.err(), "stopping") == 0);  // nobody is left
  }

  TEST_CASE("ddprun: a program that cannot be executed gives one line, a code, and no zombie") {
    const TempDir dir;
    const auto not_executable = dir.path() / "text";
    std::ofstream(not_executable) << "text\n";
    const auto no_interpreter = dir.path() / "script";
    std::ofstream(no_interpreter) << "#!/no/such/interpreter\n";
    std::filesystem::permissions(no_interpreter, std::filesystem::perms::owner_all);
    const auto fails = [](const std::string& program_name, int code, const char* words) {
      CAPTURE(program_name);
      const Marked marked;
      Program program({DDPRUN_PROGRAM, "--nproc_per_node=4", "--max_restarts=3", program_name});
      CHECK(program.wait() == code);
      CHECK(count(program.err(), "\n") == 1);
      CHECK(count(program.err(), program_name) >= 1);
      CHECK(count(program.err(), words) == 1);
      CHECK(program.out().empty());
      CHECK(marked.processes().empty());
    };
    std::filesystem::create_directory(dir.path() / "package.py");
    fails("./no_such_program", 127, "not found");
    fails("no_such_script.py", 127, "[launch] no_such_script.py: not found");
    fails((dir.path() / "package.py").string(), 126, "is a directory without a __main__.py");
    fails("no_such_program", 127, "not found in PATH");
    fails(not_executable.string(), 126, "Permission denied");
    fails(dir.path().string(), 126, "Permission denied");
    fails(no_interpreter.string(), 126, "interpreter");
  }

  TEST_CASE("ddprun: a script without an interpreter line runs under sh, as execvp does it") {
    const TempDir dir;
    const auto script = dir.path() / "script";
    std::ofstream(script) << "echo sh $1\n";
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    Program program({DDPRUN_PROGRAM, script.string(), "a b"});
    CHECK(program.wait() == 0);
    CHECK(program.out() == "sh a b\n");
  }

  TEST_CASE("ddprun: arguments that are too large are refused before any rank runs") {
    // The system's limit for one string is 128 KiB: the option is below it, the variable above.
    Program program(
        launch({"--nproc_per_node=2", "--rdzv_id=" + std::string(131'058, 'x')}, {"out:never\\n"}));
    CHECK(program.wait() == 2);
    CHECK(count(program.err(), "E2BIG") == 1);
    CHECK(count(program.err(), "\n") == 1);
    CHECK(program.out().empty());
  }

  TEST_CASE("ddprun: a restart that cannot start says why, and what failed before it") {
    const TempDir dir;
    Program program({DDPRUN_PROGRAM, "--max_restarts=2", "--log_dir", dir.path(), "/bin/sh", "-c",
                     "cd " + dir.path().string() + " && mv * away && touch $(basename " +
                         "$(dirname $(dirname $(dirname $TORCHELASTIC_ERROR_FILE)))); exit 7"});
    CHECK(program.wait() == 7);
    CHECK(count(program.err(), "ddprun: [logs] create ") == 1);
    CHECK(count(program.err(), "Not a directory") == 1);
    CHECK(count(report_of(program), "rank 0 (local rank 0") == 1);
  }

  TEST_CASE("ddprun: a current directory that is gone is one line, also in a dry run") {
    for (const char* option : {"--dry_run", "--nproc_per_node=1"}) {
      const TempDir dir;
      Program program({"/bin/sh", "-c",
                       "cd $1 && mkdir gone && cd gone && rmdir ../gone; shift; exec \"$@\"", "sh",
                       dir.path(), DDPRUN_PROGRAM, option, "--log_dir", "logs", "/bin/true"});
      CHECK(program.wait() == 2);
      CHECK(program.err().starts_with("ddprun: [logs] --log_dir logs: the current directory"));
      CHECK(count(program.err(), "\n") == 1);
    }
  }

  TEST_CASE("ddprun: with too few descriptors it works or ends with 75 and one line") {
    for (int limit = 8; limit <= 32; limit += 2) {
      CAPTURE(limit);
      const TempDir dir;
      Program program({"/bin/sh", "-c",
                       "ulimit -n " + std::to_string(limit) + "; exec \"$0\" \"$@\"",
                       DDPRUN_PROGRAM, "--nproc_per_node=2", "--log_dir", dir.path(), "/bin/true"});
      const int code = program.wait();
      if (code == 0) continue;
      CAPTURE(program.err());
      CHECK(code == 75);
      CHECK(count(program.err(), "ddprun: [") == 1);
      CHECK(count(program.err(), "Too many open files") == 1);
    }
  }

  TEST_CASE("ddprun: the soft limit of descriptors is no limit of workers, and is theirs") {
    Program program({"/bin/sh", "-c", "ulimit -S -n 40; exec \"$0\" \"$@\"", DDPRUN_PROGRAM,
                     "--nproc_per_node=20", "/bin/sh", "-c", "ulimit -S -n"});
    CHECK(program.wait() == 0);
    CHECK(count(program.out(), "]: 40\n") == 20);
  }

  TEST_CASE("ddprun: restarts all ranks, numbers the attempts, and keeps every attempt's logs") {
    const TempDir dir;
    const auto logs = dir.path() / "a b" / "logs";
    Program program(launch({"--nproc_per_node=2", "--max_restarts=2", "--log_dir", logs.string()},
                           {"env:TORCHELASTIC_RESTART_COUNT", "1@exit_once:2", "1@out:done\\n"}));
    CHECK(program.wait() == 0);
    CHECK(count(program.out(), "[rank1]: done\n") == 1);
    CHECK(count(program.err(), "starting all ranks again") == 2);
    const auto run = only_entry(logs);
    for (int attempt = 0; attempt < 3; ++attempt) {
      const auto dir_of_attempt = run / ("attempt_" + std::to_string(attempt));
      CHECK(std::filesystem::exists(dir_of_attempt / "0" / "stdout.log"));
      CHECK(read_file(dir_of_attempt / "1" / "stdout.log")
                .starts_with("TORCHELASTIC_RESTART_COUNT=" + std::to_string(attempt) + "\n"));
    }
  }

  TEST_CASE("ddprun: when the budget is used up, the last attempt's failure counts") {
    Program program(launch({"--nproc_per_node=2", "--max_restarts=1"}, {"1@exit:4", "0@wait"}));
    CHECK(program.wait() == 4);
    CHECK(count(program.err(), "starting all ranks again, restart 1 of 1") == 1);
    CHECK(count(report_of(program), "attempt 1): exit code 4") == 1);
  }

  TEST_CASE("ddprun: a port that is taken ends with 75") {
    Program first(launch({"--nproc_per_node=1", "--master_port=0"},
                         {"env:MASTER_PORT", "out:ready\\n", "wait"}));
    REQUIRE(first.wait_for("ready"));
    const std::string port = first.out().substr(12, first.out().find('\n') - 12);
    Program second(launch({"--master_port=" + port}, {"out:never\\n"}));
    CHECK(second.wait() == 75);
    CHECK(count(second.err(), port) >= 1);
    CHECK(second.out().empty());
    first.kill(SIGTERM);
    CHECK(first.wait() == 143);
  }
}
