// SPDX-License-Identifier: MIT
// Keys of their own, so that ranks which leave together do not wait for each other; see notices.h.
//   nccl/failure          KIND RANK TEXT, of the first; others find it taken
//   nccl/overdue          SEQUENCE, the latest
//   nccl/left             how many ranks have left; the following are looked for when there are any
//   nccl/left/RANK        SEQUENCE
//   nccl/position/RANK    SEQUENCE OPERATION
#include "comm/nccl/notices.h"

#include <ddprun/error.h>

#include <exception>
#include <sstream>

#include <fmt/core.h>

namespace ddprun {
namespace {

constexpr const char* kFailure = "nccl/failure";
constexpr const char* kOverdue = "nccl/overdue";
constexpr const char* kLeft = "nccl/left";

constexpr std::chrono::milliseconds kForAnswer(1000);

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

template <class Call>
std::invoke_result_t<Call, Store&> Notices::ask_store(Call call) {
  struct Answer {
    std::optional<std::invoke_result_t<Call, Store&>> value;
    std::exception_ptr error;
  };
  const auto deadline = Deadline::after(kForAnswer);
  const auto answer = std::make_shared<Answer>();
  const std::lock_guard lock(mutex_);
  if (latest_ == nullptr || latest_->finished_by(deadline))
    latest_ = std::make_unique<BoundedCall>("nccl-store", [store = store_, answer, call] {
      try {
        answer->value = call(*store);
      } catch (...) {
        answer->error = std::current_exception();
      }
    });
  if (!latest_->finished_by(deadline))
    throw TimeoutError(fmt::format("[nccl] rank {}: the store has not answered within {} ms", rank_,
                                   kForAnswer.count()));
  if (answer->error) std::rethrow_exception(answer->error);
  return std::move(*answer->value);
}

News Notices::read() {
  return ask_store([size = size_](Store& store) {
    News news;
    if (const auto failure = store.try_get(kFailure)) news.failure = parse_failure(*failure);
    news.overdue = parse_sequence(store.try_get(kOverdue).value_or(""));
    if (!store.try_get(kLeft)) return news;
    for (int rank = 0; rank < size; ++rank)
      if (const auto last = store.try_get(left_key(rank))) news.left[rank] = parse_sequence(*last);
    return news;
  });
}

std::optional<Failure> Notices::told() {
  try {
    return read().failure;
  } catch (const Error&) {  // the rank that hosts it may be the one that has died
    return std::nullopt;
  }
}

Failure Notices::agree(const Failure& own) {
  return ask_store([text = to_text(own)](Store& store) {
    return parse_failure(store.compare_set(kFailure, "", text));
  });
}

void Notices::leave(std::uint64_t last) {
  ask_store([last, key = left_key(rank_)](Store& store) {
    store.set(key, std::to_string(last));
    return store.add(kLeft, 1);
  });
}

void Notices::ask(std::uint64_t overdue) {
  ask_store([overdue](Store& store) {
    std::string held = store.try_get(kOverdue).value_or("");
    while (parse_sequence(held) < overdue)
      held = store.compare_set(kOverdue, held, std::to_string(overdue));
    return held;
  });
}

void Notices::publish(const Position& own) {
  ask_store([key = position_key(rank_), own](Store& store) {
    store.set(key, fmt::format("{} {}", own.sequence, own.operation));
    return true;
  });
}

std::vector<std::optional<Position>> Notices::positions() {
  return ask_store([size = size_](Store& store) {
    std::vector<std::optional<Position>> all;
    for (int rank = 0; rank < size; ++rank) {
      all.emplace_back();
      if (const auto text = store.try_get(position_key(rank))) {
        std::istringstream line(*text);
        Position position;
        line >> position.sequence;
        position.operation = rest_of(line);
        all.back() = position;
      }
    }
    return all;
  });
}

}  // namespace ddprun
