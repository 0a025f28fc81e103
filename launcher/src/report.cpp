// SPDX-License-Identifier: MIT
// Words for a RunResult; see report.h.
#include "report.h"

#include <algorithm>
#include <csignal>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

namespace ddprun {
namespace {

constexpr std::size_t kMaxExceptionText = 4096;
constexpr std::size_t kMaxOtherText = 200;

std::string seconds(std::chrono::milliseconds time) {
  return fmt::format("{:.3f} s", std::chrono::duration<double>(time).count());
}

std::string exception_of(const RankFailure& failure) {
  return failure.exception_type + ": " + failure.exception_text;
}

std::string_view first_line(std::string_view text) { return text.substr(0, text.find('\n')); }

std::string cut(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return std::string(text);
  return fmt::format("{} [... {} bytes]", text.substr(0, limit), text.size());
}

/// What tells a rank's own end from one that somebody caused; nothing to say of an exit code.
std::string evidence(const ExitStatus& status) {
  if (!status.signaled) return "";
  const bool usual = status.value == SIGKILL || status.value == SIGTERM || status.value == SIGINT;
  return fmt::format(
      "[ddprun]   how we know: the kernel reports the signal; ddprun did not send it{}\n",
      usual ? ", the sender is not known" : "");
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

/// "0, 2, 4-7".
std::string list_of(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text;
  for (std::size_t from = 0, to = 0; from < ranks.size(); from = to) {
    while (to < ranks.size() && ranks[to] - ranks[from] == static_cast<int>(to - from)) ++to;
    if (to - from < 3) to = from + 1;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ranks[from]);
    if (to - from > 1) text += fmt::format("-{}", ranks[to - 1]);
  }
  return text;
}

/// One line for all that failed in the same words.
std::string other_failures(std::span<const RankFailure> failures) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (const RankFailure& failure : failures) {
    std::string words = failure.status.text();
    if (!failure.exception_type.empty())
      words += ": " + cut(first_line(exception_of(failure)), kMaxOtherText);
    const auto same = [&](const auto& group) { return group.first == words; };
    auto group = std::find_if(groups.begin(), groups.end(), same);
    if (group == groups.end()) group = groups.insert(group, {words, {}});
    group->second.push_back(failure.rank);
  }
  std::string text;
  for (const auto& [words, ranks] : groups)
    text += fmt::format("[ddprun] rank{} {} failed too: {}\n", ranks.size() == 1 ? "" : "s",
                        list_of(ranks), words);
  return text;
}

/// Whether its stderr ends with record()'s line and has nothing else.
bool repeats_exception(const RankFailure& failure) {
  const std::string line = fmt::format("rank {}: {}", failure.rank, exception_of(failure));
  return line.size() <= kMaxExceptionText && failure.stderr_tail == line;
}

std::string first_failure(const RankFailure& failure) {
  std::string text = fmt::format(
      "[ddprun] first failure: rank {} (local rank {}, pid {}, attempt {}): {} after {}\n",
      failure.rank, failure.local_rank, failure.pid, failure.attempt, failure.status.text(),
      seconds(failure.after));
  text += evidence(failure.status);
  if (!failure.exception_type.empty())
    text +=
        fmt::format("[ddprun]   exception: {}\n", cut(exception_of(failure), kMaxExceptionText));
  if (failure.culprit && failure.culprit_ended_well_after)
    text += fmt::format("[ddprun]   rank {} had ended with exit code 0 after {}\n",
                        *failure.culprit, seconds(*failure.culprit_ended_well_after));
  if (!failure.stderr_tail.empty() && !repeats_exception(failure))
    text += "[ddprun]   the end of its stderr:\n" + indent(failure.stderr_tail, "    ");
  if (!failure.stderr_path.empty())
    text += fmt::format("[ddprun]   log: {}\n", failure.stderr_path.string());
  return text;
}

}  // namespace

std::string format_report(const RunResult& result) {
  const std::string error = result.error.empty() ? "" : "ddprun: " + result.error + "\n";
  if (result.failures.empty()) return error;
  const std::span failures(result.failures);
  return error + other_failures(failures.subspan(1)) + first_failure(failures.front());
}

}  // namespace ddprun
