// SPDX-License-Identifier: MIT
// Looks at the other ranks; see peer_watch.h.
#include "comm/nccl/peer_watch.h"

#include <ddprun/error.h>

#include <vector>

#include <fmt/core.h>
#include <fmt/format.h>

#include "comm/nccl/nccl_error.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBetweenReadings(200);
constexpr milliseconds kForAnswers(1000);

std::string name_of(const Position& position) {
  return fmt::format("{} #{}", position.operation, position.sequence);
}

Failure failure_on_host(const std::exception_ptr& error, int own_rank) {
  try {
    std::rethrow_exception(error);
  } catch (const RemoteError& remote) {
    return {FailureKind::died, remote.rank(), remote.what()};
  } catch (const TimeoutError& late) {
    return {FailureKind::silent, own_rank, late.what()};
  } catch (const std::exception& other) {
    return {FailureKind::aborted, own_rank, other.what()};
  }
}

}  // namespace

std::optional<Failure> PeerWatch::look(const NcclWorkState& oldest, const Position& last) {
  if (auto failure = look_at_host()) return failure;
  const bool overdue = oldest.deadline().expired();
  if (next_reading_.expired() || overdue) {
    next_reading_ = Deadline::after(kBetweenReadings);
    if (auto failure = read_notices(oldest, last)) return failure;
  }
  return overdue ? ask_where_all_are(oldest, last) : std::nullopt;
}

void PeerWatch::rest(const Position& last) { publish(last); }

// Who tells the host has told the store before, in better words.
std::optional<Failure> PeerWatch::look_at_host() {
  const auto error = host_.peer_failure();
  if (error == nullptr) return std::nullopt;
  if (auto told = notices_.told()) return told;
  return failure_on_host(error, rank_);
}

std::optional<Failure> PeerWatch::read_notices(const NcclWorkState& oldest, const Position& last) {
  const News news = notices_.read();
  if (news.failure) return news.failure;
  if (news.overdue > 0 && news.overdue >= published_) publish(last);
  for (const auto& [rank, sequence] : news.left)
    if (sequence < oldest.position().sequence)
      return Failure{
          FailureKind::left, rank,
          fmt::format("[nccl] {}: rank {} has left the group (destroyed it, or ended) after #{}; "
                      "all ranks must make the same calls",
                      name_of(oldest.position()), rank, sequence)};
  return std::nullopt;
}

std::optional<Failure> PeerWatch::ask_where_all_are(const NcclWorkState& oldest,
                                                    const Position& last) {
  const Position& wanted = oldest.position();
  if (wanted.sequence == 0)  // of the set-up; all ranks have the same deadline
    return Failure{FailureKind::silent, rank_,
                   fmt::format("[nccl] set-up: all ranks have joined, but the first all_reduce has "
                               "not finished within {} ms (timeout) on rank {}; {}",
                               oldest.patience().count(), rank_, network_advice())};
  if (asked_ != wanted.sequence) {
    asked_ = wanted.sequence;
    answers_until_ = Deadline::after(kForAnswers);
    publish(last);
    notices_.ask(wanted.sequence);
  }
  std::vector<std::string> behind;
  int first_behind = -1;
  const auto positions = notices_.positions();
  for (std::size_t r = 0; r < positions.size(); ++r) {
    if (positions[r] && positions[r]->sequence >= wanted.sequence) continue;
    if (first_behind < 0) first_behind = static_cast<int>(r);
    behind.push_back(fmt::format("rank {} ({})", r,
                                 !positions[r] ? "which does not answer"
                                 : positions[r]->sequence == 0
                                     ? "which has begun none on its GPU"
                                     : fmt::format("whose last is {}", name_of(*positions[r]))));
  }
  if (!behind.empty() && !answers_until_.expired()) return std::nullopt;
  if (oldest.done()) return std::nullopt;  // while the store was asked
  const auto patience = oldest.patience().count();
  if (behind.empty())
    return Failure{FailureKind::silent, rank_,
                   fmt::format("[nccl] {}: all ranks have begun it, but it has not finished within "
                               "{} ms; {}; or raise ProcessGroupOptions::timeout",
                               name_of(wanted), patience, network_advice())};
  return Failure{
      FailureKind::silent, first_behind,
      fmt::format("[nccl] {}: not reached within {} ms by {}; see what it is doing, or raise "
                  "ProcessGroupOptions::timeout",
                  name_of(wanted), patience, fmt::join(behind, ", "))};
}

void PeerWatch::publish(const Position& last) {
  if (last.sequence == published_) return;
  notices_.publish(last);
  published_ = last.sequence;
}

}  // namespace ddprun
