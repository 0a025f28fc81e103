// SPDX-License-Identifier: MIT
// What the user reads after a failure: report, tail of stderr, exit status, error record.
#include "report.h"

#include <csignal>
#include <filesystem>
#include <string>

#include <doctest/doctest.h>

#include "error_file.h"
#include "log_sink.h"
#include "support/scoped_env.h"
#include "support/temp_dir.h"

using namespace ddprun;

namespace {

RankFailure failure(int rank, ExitStatus status) {
  RankFailure made;
  made.rank = rank;
  made.local_rank = rank;
  made.pid = 100 + rank;
  made.status = status;
  made.after = std::chrono::milliseconds(1234);
  return made;
}

}  // namespace

TEST_SUITE("launcher") {
  TEST_CASE("Error record: one that is nested deeper than any is none, and is not passed on") {
    const ddprun::test::TempDir dir;
    const std::string path = dir.path() / "above.json";
    const ddprun::test::ScopedEnv scope({{"TORCHELASTIC_ERROR_FILE", path}});
    const auto nested = [](std::size_t depth) {
      return R"({"message": {"message": "E: x", "a": )" + std::string(depth, '[') +
             std::string(depth, ']') + "}}";
    };
    forward_error_record(nested(400'000), 3);
    CHECK_FALSE(std::filesystem::exists(path));
    CHECK(parse_error_record(nested(400'000)).type.empty());
    CHECK(parse_error_record(nested(60)).type == "E");
    forward_error_record(nested(60), 3);
    CHECK(std::filesystem::exists(path));
  }

  TEST_CASE("Report: an attempt that could not start comes before the failures of the last one") {
    RunResult result;
    result.error = "[logs] create x: Not a directory";
    result.failures = {failure(1, {.signaled = false, .value = 7, .core_dumped = false})};
    const std::string text = format_report(result);
    CHECK(text.starts_with(
        "ddprun: [logs] create x: Not a directory\n[ddprun] first failure: rank 1"));
  }

  TEST_CASE("ExitStatus: in words and as the shell's number") {
    CHECK(ExitStatus{}.ok());
    const ExitStatus code{.signaled = false, .value = 137, .core_dumped = false};
    CHECK(code.text() == "exit code 137");
    CHECK(code.code() == 137);
    const ExitStatus signal{.signaled = true, .value = SIGSEGV, .core_dumped = true};
    CHECK(signal.text() == "signal SIGSEGV (11), core dumped");
    CHECK(signal.code() == 139);
  }

  TEST_CASE("Report: the first failure comes last, with all that is known") {
    RunResult result;
    result.exit_code = 3;
    result.failures = {failure(5, {.signaled = false, .value = 3, .core_dumped = false}),
                       failure(1, {.signaled = true, .value = SIGABRT, .core_dumped = false})};
    result.failures[0].stderr_tail = "opening\nbad device 73";
    result.failures[0].stderr_path = "/logs/attempt_0/5/stderr.log";
    result.failures[0].exception_type = "std::runtime_error";
    result.failures[0].exception_text = "bad device";
    CHECK(format_report(result) ==
          "[ddprun] rank 1 failed too: signal SIGABRT (6)\n"
          "[ddprun] first failure: rank 5 (local rank 5, pid 105, attempt 0): exit code 3 after "
          "1.234 s\n"
          "[ddprun]   exception: std::runtime_error: bad device\n"
          "[ddprun]   the end of its stderr:\n"
          "    opening\n"
          "    bad device 73\n"
          "[ddprun]   log: /logs/attempt_0/5/stderr.log\n");
  }

  TEST_CASE("Report: equal failures are one line, and each text is one line") {
    const ExitStatus one{.signaled = false, .value = 1, .core_dumped = false};
    RunResult result;
    for (const int rank : {9, 7, 3, 0, 5, 4, 2}) result.failures.push_back(failure(rank, one));
    for (RankFailure& failed : result.failures) {
      failed.exception_type = "ddprun::RemoteError";
      failed.exception_text = "rank 9 died\nof something";
    }
    result.failures[1].exception_text = std::string(1000, 'x');
    const std::string text = format_report(result);
    CHECK(text.starts_with("[ddprun] rank 7 failed too: exit code 1: ddprun::RemoteError: xxx"));
    CHECK(text.find("x [... 1021 bytes]\n"
                    "[ddprun] ranks 0, 2-5 failed too: exit code 1: ddprun::RemoteError: rank 9 "
                    "died\n[ddprun] first failure: rank 9 ") != std::string::npos);
  }

  TEST_CASE("Report: a stderr that holds the exception's line alone is not shown again") {
    RunResult result;
    result.failures = {failure(2, {.signaled = false, .value = 1, .core_dumped = false})};
    RankFailure& first = result.failures.front();
    first.exception_type = "std::runtime_error";
    first.exception_text = "bad device\n73";
    const auto shows_stderr = [&](const std::string& tail) {
      first.stderr_tail = tail;
      return format_report(result).find("the end of its stderr") != std::string::npos;
    };
    CHECK_FALSE(shows_stderr("rank 2: std::runtime_error: bad device\n73"));
    CHECK(shows_stderr("opening\nrank 2: std::runtime_error: bad device\n73"));
    CHECK(shows_stderr("rank 2: std::runtime_error: bad device\n73\nterminate called"));
    first.exception_text = std::string(5000, 'x');  // cut in the line of the exception
    CHECK(shows_stderr("rank 2: std::runtime_error: " + first.exception_text));
  }

  TEST_CASE("Report: says when the rank that is blamed had ended well") {
    RunResult result;
    result.failures = {failure(0, {.signaled = false, .value = 1, .core_dumped = false})};
    result.failures.front().culprit = 1;
    CHECK(format_report(result).find("had ended") == std::string::npos);
    result.failures.front().culprit_ended_well_after = std::chrono::milliseconds(400);
    CHECK(format_report(result).ends_with(
        "[ddprun]   rank 1 had ended with exit code 0 after 0.400 s\n"));
  }

  TEST_CASE("Report: a SIGKILL says that its sender is not known, and claims no cause") {
    RunResult result;
    result.failures = {failure(0, {.signaled = true, .value = SIGKILL, .core_dumped = false})};
    CHECK(format_report(result).find("the sender is not known") != std::string::npos);
  }

  TEST_CASE("Report: nothing after success, one line when nothing could be started") {
    CHECK(format_report({}).empty());
    RunResult result;
    result.error = "[launch] ./x: not found";
    CHECK(format_report(result) == "ddprun: [launch] ./x: not found\n");
  }

  TEST_CASE("LogTail: keeps the last bytes, and gives the last lines") {
    LogTail tail;
    CHECK(tail.last_lines(20, 1000).empty());
    tail.append("a\nb\nc\n");
    CHECK(tail.last_lines(2, 1000) == "b\nc");
    CHECK(tail.last_lines(3, 1000) == "a\nb\nc");
    CHECK(tail.last_lines(9, 1000) == "a\nb\nc");
    CHECK(tail.last_lines(9, 3) == "b\nc");
    for (int i = 0; i < 100'000; ++i) tail.append("line " + std::to_string(i) + "\n");
    CHECK(tail.last_lines(1, 1000) == "line 99999");
    CHECK(tail.last_lines(1'000'000, 1'000'000).size() <= 2 * LogTail::kKept);
    CHECK(tail.last_lines(1'000'000, 1'000'000).size() >= LogTail::kKept / 2);
  }

  TEST_CASE("Error record: PyTorch's two forms are read") {
    const auto nested = parse_error_record(
        R"({"message": {"message": "ValueError: no: it is 7", "extraInfo": {"timestamp": "1"}}})");
    CHECK(nested.type == "ValueError");
    CHECK(nested.text == "no: it is 7");
    const auto flat = parse_error_record(R"({"message": "std::bad_alloc: out", "timestamp": 1})");
    CHECK(flat.type == "std::bad_alloc");
    CHECK(flat.text == "out");
    CHECK(parse_error_record(R"({"message": "KeyboardInterrupt"})").type == "KeyboardInterrupt");
  }

  TEST_CASE("Error record: names the rank that is blamed, if it is a rank") {
    const auto culprit = [](const std::string& extra) {
      const auto record =
          parse_error_record(R"({"message": {"message": "E: x", "extraInfo": )" + extra + "}}");
      CHECK(record.text == "x");
      return record.culprit;
    };
    CHECK(culprit(R"({"remote_rank": "12"})") == 12);
    for (const char* other :
         {"{}", "7", R"({"remote_rank": 1})", R"({"remote_rank": "-1"})", R"({"remote_rank": ""})",
          R"({"remote_rank": "1 "})", R"({"remote_rank": "99999999999"})"})
      CHECK_MESSAGE(!culprit(other), other);
  }

  TEST_CASE("Error record: missing, cut off or something else is no record") {
    for (const char* text : {"", "{", R"({"message": {"mess)", "[]", "7", R"({"message": 7})",
                             R"({"other": "x"})", R"({"message": {"other": "x"}})", "\xff\xfe"})
      CHECK_MESSAGE(parse_error_record(text).type.empty(), text);
  }
}
