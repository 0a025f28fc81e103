// SPDX-License-Identifier: MIT
// The ddprun program: words in, exit code out.
#include <ddprun/error.h>
#include <ddprun/launch.h>

#include <cstdio>
#include <exception>
#include <span>
#include <string>

namespace {

// The exit codes of ddprun itself; those of a job are in RunResult.
constexpr int kUsage = 2;
constexpr int kInternal = 70;
constexpr int kTryAgain = 75;

int fail(int code, const char* what) {
  std::fprintf(stderr, "ddprun: %s\n", what);
  return code;
}

int print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
    return fail(kTryAgain, "[cli] cannot write to stdout");
  return 0;
}

int run_words(std::span<const char* const> words) {
  const ddprun::CommandLine line = ddprun::parse_command_line(words);
  if (line.text) return print(*line.text);
  if (line.dry_run) return print(ddprun::describe(line.config));
  return ddprun::run(line.config).exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run_words(std::span(argv, static_cast<std::size_t>(argc)).subspan(argc > 0 ? 1 : 0));
  } catch (const ddprun::UsageError& e) {
    return fail(kUsage, e.what());
  } catch (const ddprun::ConnectionError& e) {
    return fail(kTryAgain, e.what());
  } catch (const ddprun::TimeoutError& e) {
    return fail(kTryAgain, e.what());
  } catch (const std::exception& e) {
    return fail(kInternal, (std::string("internal error, please report it: ") + e.what()).c_str());
  }
}
