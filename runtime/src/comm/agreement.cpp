// SPDX-License-Identifier: MIT
// Agreement by hash, explanation by exchange; see agreement.h.
#include "comm/agreement.h"

#include <ddprun/error.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include <fmt/format.h>

namespace ddprun {
namespace {

using Facts = std::vector<std::string>;

// The ranks that have the same facts.
struct Side {
  Facts facts;
  std::vector<int> ranks;
};

constexpr char kSeparator = '\0';

std::string join(std::span<const std::string> facts) {
  std::string text;
  for (const std::string& fact : facts) (text += fact) += kSeparator;
  return text;
}

Facts split(std::string_view text) {
  Facts facts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(kSeparator), text.size() - 1);
    facts.emplace_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return facts;
}

// FNV-1a, 64 bits.
std::int64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return static_cast<std::int64_t>(hash);
}

// The text of `root`, on every rank, through a collective that knows numbers only.
std::string broadcast_text(ProcessGroup& group, const std::string& own, int root) {
  std::array<std::int64_t, 1> length = {static_cast<std::int64_t>(own.size())};
  group.broadcast(view(length), root);
  const auto size = static_cast<std::size_t>(length[0]);
  std::vector<std::int64_t> words((size + sizeof(std::int64_t) - 1) / sizeof(std::int64_t));
  auto* const bytes = reinterpret_cast<char*>(words.data());
  if (group.rank() == root) std::ranges::copy(own, bytes);
  group.broadcast(view(words), root);
  return {bytes, size};
}

// Largest side first; of equally large ones that with the lowest rank.
std::vector<Side> gather_sides(ProcessGroup& group, const std::string& own) {
  std::vector<Side> sides;
  for (int rank = 0; rank < group.size(); ++rank) {
    Facts facts = split(broadcast_text(group, own, rank));
    const auto same = std::ranges::find(sides, facts, &Side::facts);
    if (same == sides.end())
      sides.push_back({std::move(facts), {rank}});
    else
      same->ranks.push_back(rank);
  }
  std::ranges::stable_sort(sides, std::ranges::greater{},
                           [](const Side& side) { return side.ranks.size(); });
  return sides;
}

std::string name_ranks(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

// "rank 2 has X, ranks 0, 1 have Y"
std::string describe(const Side& side, const Side& majority) {
  const std::size_t shorter = std::min(side.facts.size(), majority.facts.size());
  std::size_t i = 0;
  while (i < shorter && side.facts[i] == majority.facts[i]) ++i;
  const auto has = [i](const Side& s) {
    return fmt::format("{} {} {}", name_ranks(s.ranks), s.ranks.size() == 1 ? "has" : "have",
                       i < s.facts.size() ? s.facts[i] : "nothing more");
  };
  return fmt::format("{}, {}", has(side), has(majority));
}

}  // namespace

void require_same_on_all_ranks(ProcessGroup& group, std::string_view subject,
                               std::span<const std::string> facts, std::string_view advice) {
  const std::string own = join(facts);
  const std::int64_t hash = hash_of(own);
  std::array<std::int64_t, 2> largest = {hash, ~hash};  // ~ reverses the order: the smallest, too
  group.all_reduce(view(largest), ReduceOp::max);
  if (largest[0] == ~largest[1]) return;

  const std::vector<Side> sides = gather_sides(group, own);
  constexpr std::size_t kShown = 4;
  std::string differences;
  for (std::size_t i = 1; i < sides.size() && i <= kShown; ++i)
    differences += (i == 1 ? "" : "; ") + describe(sides[i], sides[0]);
  if (sides.size() > kShown + 1)
    differences += fmt::format("; and {} other variants", sides.size() - 1 - kShown);
  throw UsageError(fmt::format("{}: the ranks differ: {}; {}", subject, differences, advice));
}

}  // namespace ddprun
