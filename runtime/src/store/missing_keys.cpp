// SPDX-License-Identifier: MIT
// Names keys in messages; see missing_keys.h.
#include "store/missing_keys.h"

#include <ddprun/error.h>

#include <fmt/core.h>

namespace ddprun {
namespace {

constexpr std::size_t kMaxKeyText = 200;
constexpr std::size_t kMaxNamed = 64;

}  // namespace

std::string quote_key(std::string_view key) {
  std::string text = "'";
  for (const char c : key.substr(0, kMaxKeyText)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f)
      text += fmt::format("\\x{:02x}", byte);
    else
      text += c;
  }
  return text + (key.size() > kMaxKeyText ? "...'" : "'");
}

void throw_missing(std::string_view operation, std::span<const std::string> missing,
                   std::string_view where, Deadline::Clock::duration waited) {
  std::string names;
  for (std::size_t i = 0; i < missing.size() && i < kMaxNamed; ++i)
    names += (i == 0 ? "" : ", ") + quote_key(missing[i]);
  if (missing.size() > kMaxNamed) names += fmt::format(" and {} more", missing.size() - kMaxNamed);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(waited).count();
  throw TimeoutError(
      fmt::format("[store] {}: {} missing on {} after {} ms; the rank that sets it is late or gone",
                  operation, names, where, ms));
}

}  // namespace ddprun
