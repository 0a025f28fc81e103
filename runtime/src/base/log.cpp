// SPDX-License-Identifier: MIT
// The logger behind log.h; the only file that includes spdlog.
#include "base/log.h"

#include <memory>

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "base/env.h"

namespace ddprun {
namespace {

spdlog::level::level_enum level_from_environment() {
  const auto text = get_env("LOGLEVEL").value_or("WARNING");
  if (text == "DEBUG") return spdlog::level::debug;
  if (text == "INFO") return spdlog::level::info;
  if (text == "ERROR") return spdlog::level::err;
  return spdlog::level::warn;
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
  }
  return spdlog::level::off;
}

spdlog::logger& logger() {
  static const auto instance = [] {
    auto made = std::make_unique<spdlog::logger>("ddprun",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_level(level_from_environment());
    made->set_pattern("%Y-%m-%d %H:%M:%S.%e %l %P %v");
    return made;
  }();
  return *instance;
}

}  // namespace

bool log_enabled(LogLevel level) noexcept { return logger().should_log(to_spdlog(level)); }

void log_line(LogLevel level, std::string_view component, std::string_view text) noexcept try {
  logger().log(to_spdlog(level), "[{}] {}", component, text);
} catch (...) {  // a log line is never worth a failure
}

}  // namespace ddprun
