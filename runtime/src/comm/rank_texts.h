// SPDX-License-Identifier: MIT
// What ranks write about themselves into the store for all others to read: one text each, under
// "<prefix>/<rank>", which holds a value's fields as lines.
#pragma once

#include <ddprun/deadline.h>
#include <ddprun/export.h>
#include <ddprun/store.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>

namespace ddprun {

/// Fields: a range of pointers to members of type std::string. A line break in a value becomes a
/// blank.
template <class Value, class Fields>
std::string encode_fields(const Value& value, const Fields& fields) {
  std::string text;
  for (const auto field : fields) {
    const auto begin = static_cast<std::string::difference_type>(text.size());
    text += value.*field;
    std::replace(text.begin() + begin, text.end(), '\n', ' ');
    text += '\n';
  }
  return text;
}

/// Fields that the text does not have stay empty.
template <class Value, class Fields>
Value decode_fields(std::string_view text, const Fields& fields) {
  Value value;
  for (const auto field : fields) {
    const auto end = text.find('\n');
    if (end == std::string_view::npos) break;
    value.*field = text.substr(0, end);
    text.remove_prefix(end + 1);
  }
  return value;
}

/// How the ranks of one group find each other's texts.
struct RankTexts {
  std::string component;              // of the messages
  std::string prefix;                 // of the keys
  std::chrono::milliseconds timeout;  // of which the deadlines are the end; for messages
};

DDPRUN_API std::string key_of(const RankTexts& texts, int rank);

/// Waits for the text of `rank`.
/// Throws: TimeoutError naming every rank below `size` that has none.
DDPRUN_API std::string text_of(const RankTexts& texts, Store& store, int rank, int size,
                               Deadline deadline);

}  // namespace ddprun
