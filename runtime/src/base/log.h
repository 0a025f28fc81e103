// SPDX-License-Identifier: MIT
// One line to stderr about what ddprun itself does: "[component] text". Level from LOGLEVEL
// (DEBUG, INFO, WARNING, ERROR), default WARNING, as torchrun. For people who look for a fault:
// what every user must see is printed, not logged.
#pragma once

#include <string_view>
#include <utility>

#include <fmt/core.h>

#include <ddprun/export.h>

namespace ddprun {

enum class LogLevel { debug, info, warning, error };

/// Threads: any. Never throws.
DDPRUN_API void log_line(LogLevel level, std::string_view component, std::string_view text) noexcept;
DDPRUN_API bool log_enabled(LogLevel level) noexcept;

template <class... Args>
void log(LogLevel level, std::string_view component, fmt::format_string<Args...> format,
         Args&&... args) {
  if (log_enabled(level))
    log_line(level, component, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace ddprun
