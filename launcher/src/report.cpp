// SPDX-License-Identifier: MIT
// Words for a RunResult; see report.h.
#include "report.h"

#include <csignal>
#include <string_view>

#include <fmt/core.h>

namespace ddprun {
namespace {

constexpr std::size_t kMaxExceptionText = 4096;

std::string seconds(std::chrono::milliseconds time) {
  return fmt::format("{:.3f} s", std::chrono::duration<double>(time).count());
}

std::string exception_of(const RankFailure& failure, std::size_t limit) {
  std::string_view text = failure.exception_text;
  const bool cut = text.size() > limit;
  return fmt::format("{}: {}{}", failure.exception_type, text.substr(0, limit),
                     cut ? fmt::format(" [... {} bytes]", text.size()) : "");
}

/// What tells a rank's own end from one that somebody caused.
std::string evidence(const ExitStatus& status) {
  if (!status.signaled) return "its process ended by itself";
  if (status.value == SIGKILL || status.value == SIGTERM || status.value == SIGINT)
    return "the kernel reports the signal; ddprun did not send it, the sender is not known";
  return "the kernel reports the signal; ddprun did not send it";
}

std::string indent(std::string_view text, std::string_view by) {
  std::string result;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    result.append(by).append(text.substr(0, end)).append("\n");
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return result;
}

std::string later_failure(const RankFailure& failure) {
  std::string_view exception = failure.exception_text;
  exception = exception.substr(0, exception.find('\n'));
  return fmt::format(
      "[ddprun] after the first failure: rank {}: {} after {}{}\n", failure.rank,
      failure.status.text(), seconds(failure.after),
      failure.exception_type.empty()
          ? ""
          : fmt::format(" ({}: {})", failure.exception_type, exception.substr(0, 200)));
}

std::string first_failure(const RankFailure& failure) {
  std::string text = fmt::format(
      "[ddprun] first failure: rank {} (local rank {}, pid {}, attempt {}): {} after {}\n",
      failure.rank, failure.local_rank, failure.pid, failure.attempt, failure.status.text(),
      seconds(failure.after));
  text += fmt::format("[ddprun]   how we know: {}\n", evidence(failure.status));
  if (!failure.exception_type.empty())
    text += fmt::format("[ddprun]   exception: {}\n", exception_of(failure, kMaxExceptionText));
  if (!failure.stderr_tail.empty())
    text += "[ddprun]   the end of its stderr:\n" + indent(failure.stderr_tail, "    ");
  if (!failure.stderr_path.empty())
    text += fmt::format("[ddprun]   log: {}\n", failure.stderr_path.string());
  return text;
}

}  // namespace

std::string format_report(const RunResult& result) {
  if (!result.error.empty()) return "ddprun: " + result.error + "\n";
  std::string text;
  for (std::size_t i = result.failures.size(); i > 1; --i)
    text += later_failure(result.failures[i - 1]);
  if (!result.failures.empty()) text += first_failure(result.failures.front());
  return text;
}

}  // namespace ddprun
