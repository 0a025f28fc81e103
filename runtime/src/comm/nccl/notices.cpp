// SPDX-License-Identifier: MIT
// Keys of their own, so that ranks which leave together do not wait for each other; see notices.h.
//   nccl/failure          KIND RANK TEXT, of the first; others find it taken
//   nccl/overdue          SEQUENCE, the latest
//   nccl/left             how many ranks have left; the following are looked for when there are any
//   nccl/left/RANK        SEQUENCE
//   nccl/position/RANK    SEQUENCE OPERATION
#include "comm/nccl/notices.h"

#include <sstream>

#include <fmt/core.h>

namespace ddprun {
namespace {

constexpr const char* kFailure = "nccl/failure";
constexpr const char* kOverdue = "nccl/overdue";
constexpr const char* kLeft = "nccl/left";

std::string left_key(int rank) { return fmt::format("{}/{}", kLeft, rank); }
std::string position_key(int rank) { return fmt::format("nccl/position/{}", rank); }

std::string rest_of(std::istringstream& line) {
  std::string rest;
  std::getline(line >> std::ws, rest);
  return rest;
}

std::uint64_t parse_sequence(const std::string& text) {
  return text.empty() ? 0 : std::stoull(text);
}

std::string to_text(const Failure& failure) {
  return fmt::format("{} {} {}", static_cast<int>(failure.kind), failure.rank, failure.text);
}

Failure parse_failure(const std::string& text) {
  std::istringstream line(text);
  Failure failure;
  int kind = 0;
  line >> kind >> failure.rank;
  failure.kind = static_cast<FailureKind>(kind);
  std::getline(line.ignore(), failure.text, '\0');
  return failure;
}

}  // namespace

News Notices::read() {
  News news;
  if (const auto failure = store_.try_get(kFailure)) news.failure = parse_failure(*failure);
  news.overdue = parse_sequence(store_.try_get(kOverdue).value_or(""));
  if (!store_.try_get(kLeft)) return news;
  for (int rank = 0; rank < size_; ++rank)
    if (const auto last = store_.try_get(left_key(rank))) news.left[rank] = parse_sequence(*last);
  return news;
}

Failure Notices::agree(const Failure& own) {
  return parse_failure(store_.compare_set(kFailure, "", to_text(own)));
}

void Notices::leave(std::uint64_t last) {
  store_.set(left_key(rank_), std::to_string(last));
  store_.add(kLeft, 1);
}

void Notices::ask(std::uint64_t overdue) {
  std::string held = store_.try_get(kOverdue).value_or("");
  while (parse_sequence(held) < overdue)
    held = store_.compare_set(kOverdue, held, std::to_string(overdue));
}

void Notices::publish(const Position& own) {
  store_.set(position_key(rank_), fmt::format("{} {}", own.sequence, own.operation));
}

std::vector<std::optional<Position>> Notices::positions() {
  std::vector<std::optional<Position>> all;
  for (int rank = 0; rank < size_; ++rank) {
    all.emplace_back();
    if (const auto text = store_.try_get(position_key(rank))) {
      std::istringstream line(*text);
      Position position;
      line >> position.sequence;
      position.operation = rest_of(line);
      all.back() = position;
    }
  }
  return all;
}

}  // namespace ddprun
