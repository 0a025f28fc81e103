// SPDX-License-Identifier: MIT
// Reads environment variables and numbers in text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <ddprun/export.h>

namespace ddprun {

/// Empty when the variable is not set; an empty value is a value.
DDPRUN_API std::optional<std::string> get_env(const char* name);

/// The whole of `text` as a decimal number: no blanks, no sign but '-', no overflow; else empty.
DDPRUN_API std::optional<std::int64_t> parse_int(std::string_view text);

}  // namespace ddprun
