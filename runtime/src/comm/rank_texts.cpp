// SPDX-License-Identifier: MIT
// Reads what ranks wrote about themselves; see rank_texts.h.
#include "comm/rank_texts.h"

#include <ddprun/error.h>

#include <vector>

#include <fmt/core.h>
#include <fmt/format.h>

namespace ddprun {

std::string key_of(const RankTexts& texts, int rank) {
  return fmt::format("{}/{}", texts.prefix, rank);
}

std::string text_of(const RankTexts& texts, Store& store, int rank, int size, Deadline deadline) {
  try {
    return store.get(key_of(texts, rank), deadline);
  } catch (const TimeoutError&) {
    std::vector<int> missing;
    for (int r = 0; r < size; ++r)
      if (!store.try_get(key_of(texts, r))) missing.push_back(r);
    throw TimeoutError(fmt::format(
        "[{}] set-up: rank(s) {} of {} have not arrived within {} ms; see whether they started, or "
        "raise ProcessGroupOptions::timeout",
        texts.component, fmt::join(missing, ", "), size, texts.timeout.count()));
  }
}

}  // namespace ddprun
