// SPDX-License-Identifier: MIT
// One key holds all news, a line each, in the order in which the store took them; see notices.h.
//   failed KIND RANK TEXT
//   left RANK SEQUENCE
//   overdue SEQUENCE
#include "comm/nccl/notices.h"

#include <algorithm>
#include <sstream>

#include <fmt/core.h>

namespace ddprun {
namespace {

constexpr const char* kNews = "nccl/news";

std::string position_key(int rank) { return fmt::format("nccl/position/{}", rank); }

std::string rest_of(std::istringstream& line) {
  std::string rest;
  std::getline(line >> std::ws, rest);
  return rest;
}

Failure parse_failure(std::istringstream& line) {
  Failure failure;
  int kind = 0;
  line >> kind >> failure.rank;
  failure.kind = static_cast<FailureKind>(kind);
  failure.text = rest_of(line);
  return failure;
}

News parse(const std::string& text) {
  News news;
  std::istringstream lines(text);
  for (std::string one; std::getline(lines, one);) {
    std::istringstream line(one);
    std::string what;
    line >> what;
    if (what == "failed" && !news.failure) news.failure = parse_failure(line);
    if (what == "left") {
      int rank = 0;
      line >> rank;
      line >> news.left[rank];
    }
    if (what == "overdue") {
      std::uint64_t sequence = 0;
      line >> sequence;
      news.overdue = std::max(news.overdue, sequence);
    }
  }
  return news;
}

}  // namespace

News Notices::read() { return parse(store_.try_get(kNews).value_or("")); }

Failure Notices::agree(const Failure& own) {
  std::string text = own.text;
  std::replace(text.begin(), text.end(), '\n', ' ');
  return *parse(
              append(fmt::format("failed {} {} {}\n", static_cast<int>(own.kind), own.rank, text)))
              .failure;
}

void Notices::leave(std::uint64_t last) { append(fmt::format("left {} {}\n", rank_, last)); }

void Notices::ask(std::uint64_t overdue) { append(fmt::format("overdue {}\n", overdue)); }

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

// Every dialect of the store has compare_set, not every one append.
std::string Notices::append(const std::string& line) {
  std::string expected = store_.try_get(kNews).value_or("");
  for (;;) {
    const std::string desired = expected + line;
    std::string held = store_.compare_set(kNews, expected, desired);
    if (held == desired) return held;
    expected = std::move(held);
  }
}

}  // namespace ddprun
