// SPDX-License-Identifier: MIT
// Names keys in messages: which ones a wait still misses.
#pragma once

#include <ddprun/deadline.h>

#include <span>
#include <string>
#include <string_view>

namespace ddprun {

/// In quotes; bytes that do not print are escaped and a long key is cut.
std::string quote_key(std::string_view key);

/// Throws: TimeoutError "[store] wait: 'a', 'b' missing on <where> after 200 ms; ...".
[[noreturn]] void throw_missing(std::string_view operation, std::span<const std::string> missing,
                                std::string_view where, Deadline::Clock::duration waited);

}  // namespace ddprun
