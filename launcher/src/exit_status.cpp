// SPDX-License-Identifier: MIT
// ExitStatus in words; see launch.h.
#include <ddprun/launch.h>

#include <csignal>
#include <cstring>

#include <fmt/core.h>

namespace ddprun {

std::string ExitStatus::text() const {
  if (!signaled) return fmt::format("exit code {}", value);
  const char* name = ::sigabbrev_np(value);
  return fmt::format("signal {} ({}){}", name ? fmt::format("SIG{}", name) : "?", value,
                     core_dumped ? ", core dumped" : "");
}

}  // namespace ddprun
