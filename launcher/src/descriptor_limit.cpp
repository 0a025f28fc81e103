// SPDX-License-Identifier: MIT
// Raises and restores RLIMIT_NOFILE; see descriptor_limit.h.
#include "descriptor_limit.h"

#include <algorithm>

namespace ddprun {
namespace {

/// Enough for ten thousand workers. Before Linux 5.9 descriptors are closed by number, up to the
/// limit, and a container's hard limit may be a thousand million.
constexpr rlim_t kEnough = 65536;

}  // namespace

DescriptorLimit::DescriptorLimit() {
  if (::getrlimit(RLIMIT_NOFILE, &found_) != 0) return;
  rlimit raised = found_;
  raised.rlim_cur = std::max(found_.rlim_cur, std::min(found_.rlim_max, kEnough));
  ::setrlimit(RLIMIT_NOFILE, &raised);  // refused: as many workers as the limit allows
}

void DescriptorLimit::restore() const noexcept {
  if (found_.rlim_max != 0) ::setrlimit(RLIMIT_NOFILE, &found_);
}

}  // namespace ddprun
