// SPDX-License-Identifier: MIT
// Reads the values of options; see option_value.h.
#include "option_value.h"

#include <ddprun/error.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include <fmt/core.h>

#include "base/env.h"
#include "machine.h"

namespace ddprun {
namespace {

UsageError bad_value(const OptionValue& value, std::string_view expected) {
  return UsageError(fmt::format("[cli] {}: {}", value.label(), expected));
}

std::optional<int> number_in(std::string_view text, int low, int high) {
  const auto number = parse_int(text);
  if (!number || *number < low || *number > high) return std::nullopt;
  return static_cast<int>(*number);
}

std::optional<Streams> streams_in(std::string_view text) {
  if (text.size() != 1 || text[0] < '0' || text[0] > '3') return std::nullopt;
  return static_cast<Streams>(text[0] - '0');
}

}  // namespace

std::string OptionValue::label() const {
  const bool is_option = source.starts_with('-');
  return fmt::format("{}{}{}", source, is_option && !text.empty() ? ' ' : '=', text);
}

int parse_number(const OptionValue& value, int low, int high) {
  const auto number = number_in(value.text, low, high);
  if (!number) throw bad_value(value, fmt::format("not a whole number in {}..{}", low, high));
  return *number;
}

bool parse_flag(const OptionValue& value) {
  if (value.text != "0" && value.text != "1") throw bad_value(value, "not 0 or 1");
  return value.text == "1";
}

int parse_nproc(const OptionValue& value) {
  if (const auto number = number_in(value.text, 1, kMaxRanksPerNode)) return *number;
  const bool any = value.text == "auto";
  if (any || value.text == "gpu") {
    const int gpus = visible_gpus();
    if (gpus > 0) return gpus;
    if (!any) {
      const auto visible = get_env("CUDA_VISIBLE_DEVICES");
      throw bad_value(
          value, visible
                     ? fmt::format("no GPU is visible, or none is there (CUDA_VISIBLE_DEVICES={})",
                                   *visible)
                     : "no NVIDIA GPU was found on this machine");
    }
  }
  if (any || value.text == "cpu") return std::min(usable_cpus(), kMaxRanksPerNode);
  throw bad_value(value,
                  fmt::format("not a whole number in 1..{}, auto, cpu or gpu", kMaxRanksPerNode));
}

int parse_nnodes(const OptionValue& value) {
  constexpr int kMaxNodes = 65536;
  const std::string_view text = value.text;
  const auto colon = text.find(':');
  const auto low = number_in(text.substr(0, colon), 1, kMaxNodes);
  const auto high =
      colon == text.npos ? low : number_in(text.substr(colon + 1), low.value_or(1), kMaxNodes);
  if (!low || !high) throw bad_value(value, "not N or MIN:MAX with 1 <= MIN <= MAX");
  if (*low != *high)
    throw bad_value(value,
                    "a range of node counts is not supported; one node is what this "
                    "version can do");
  return *high;
}

std::vector<Streams> parse_streams(const OptionValue& value, int nproc) {
  const auto count = static_cast<std::size_t>(nproc);
  if (const auto all = streams_in(value.text))
    return *all == Streams::none ? std::vector<Streams>{} : std::vector<Streams>(count, *all);
  std::vector<Streams> map(count, Streams::none);
  std::string_view rest = value.text;
  for (bool more = true; more;) {
    const auto comma = rest.find(',');
    const std::string_view pair = rest.substr(0, comma);
    more = comma != rest.npos;
    if (more) rest.remove_prefix(comma + 1);
    const auto colon = pair.find(':');
    const auto rank = parse_int(pair.substr(0, colon));
    const auto streams = colon == pair.npos ? std::nullopt : streams_in(pair.substr(colon + 1));
    if (!rank || *rank < 0 || !streams)
      throw bad_value(value, "not 0, 1, 2, 3 or a map of local ranks like 0:1,12:3");
    if (*rank >= nproc)
      throw bad_value(
          value, fmt::format("there is no local rank {} with --nproc_per_node {}", *rank, nproc));
    map[static_cast<std::size_t>(*rank)] = *streams;
  }
  return map;
}

}  // namespace ddprun
