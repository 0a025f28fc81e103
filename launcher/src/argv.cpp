// SPDX-License-Identifier: MIT
// The rules by which words become options and a program; see argv.h.
#include "argv.h"

#include <ddprun/error.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string_view>

#include <fmt/core.h>

namespace ddprun {
namespace {

std::string underscored(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

/// Levenshtein's distance, by rows.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

/// What the user may have meant by `name`: the options that it abbreviates, else those that are
/// the fewest typing errors away.
std::vector<std::string_view> nearest_options(std::string_view name) {
  constexpr std::size_t kLongest = 40;  // longer words are no misspelt option
  std::vector<std::string_view> nearest;
  if (name.empty() || name.size() > kLongest) return nearest;
  for (const Option& option : option_table())
    if (option.name.starts_with(name)) nearest.push_back(option.name);
  if (!nearest.empty()) return nearest;
  std::size_t best = 1 + name.size() / 4;
  for (const Option& option : option_table()) {
    const std::size_t distance = edit_distance(name, option.name);
    if (distance < best) nearest.clear();
    if (distance <= best) nearest.push_back(option.name);
    best = std::min(best, distance);
  }
  return nearest;
}

[[noreturn]] void refuse(std::string_view word) {
  const std::string_view spelled = word.substr(0, word.find('='));
  const std::string name =
      underscored(spelled.substr(std::min(spelled.find_first_not_of('-'), spelled.size())));
  for (const AbsentOption& absent : absent_options())
    if (spelled.starts_with("--") && absent.name == name)
      throw UsageError(
          fmt::format("[cli] {} is an option of torchrun that this version does not have{}{}",
                      spelled, absent.advice.empty() ? "" : "; ", absent.advice));
  const auto nearest = nearest_options(name);
  if (nearest.empty() || nearest.size() > 3)
    throw UsageError(fmt::format("[cli] {} is not an option; see ddprun --help", spelled));
  std::string names;
  for (const auto option : nearest)
    names += fmt::format("{}--{}", names.empty() ? "" : " or ", option);
  throw UsageError(fmt::format("[cli] {} is not an option; did you mean {}?", spelled, names));
}

/// An option as it stands in one word: its value too, when that is in the same word.
struct Word {
  const Option* option = nullptr;  // null: not an option of ours
  std::string_view spelled;
  std::optional<std::string_view> value;
};

Word read_word(std::string_view word) {
  Word read;
  if (word.starts_with("--")) {
    const auto equals = word.find('=');
    read.spelled = word.substr(0, equals);
    if (equals != word.npos) read.value = word.substr(equals + 1);
  } else {
    read.spelled = word.substr(0, 2);
    if (word.size() > 2) read.value = word.substr(word[2] == '=' ? 3 : 2);
  }
  const std::string name = underscored(read.spelled.substr(2));
  for (const Option& option : option_table())
    if (read.spelled.size() > 2 ? option.name == name : option.short_name == read.spelled[1])
      read.option = &option;
  return read;
}

/// The word after an option, when it can be its value.
std::optional<std::string_view> value_in(std::string_view word) {
  const bool looks_like_option =
      word.size() > 1 && word[0] == '-' && (word[1] < '0' || word[1] > '9');
  return looks_like_option ? std::nullopt : std::optional(word);
}

}  // namespace

Argv split_words(std::span<const char* const> words) {
  Argv argv;
  std::size_t at = 0;
  for (; at < words.size(); ++at) {
    const std::string_view word = words[at];
    if (word == "--") ++at;
    if (word == "--" || word == "-" || !word.starts_with('-')) break;
    Word read = read_word(word);
    if (read.option == nullptr) refuse(word);
    const Option& option = *read.option;
    if (option.is_flag() && read.value)
      throw UsageError(fmt::format("[cli] {}: {} takes no value", word, read.spelled));
    if (option.is_flag()) read.value = "1";
    if (!read.value && at + 1 < words.size()) {
      read.value = value_in(words[at + 1]);
      if (read.value) ++at;
    }
    if (!read.value)
      throw UsageError(fmt::format("[cli] {} needs a value: {} {}", read.spelled, read.spelled,
                                   option.value_name));
    argv.options.push_back({&option, {std::string(read.spelled), std::string(*read.value)}});
    if (option.name == "help" || option.name == "version") return argv;
  }
  argv.command.assign(words.begin() + static_cast<std::ptrdiff_t>(std::min(at, words.size())),
                      words.end());
  if (argv.command.empty())
    throw UsageError("[cli] no program given; usage: ddprun [options] program [arguments]");
  return argv;
}

}  // namespace ddprun
