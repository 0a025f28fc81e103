// SPDX-License-Identifier: MIT
// The limit of open descriptors that the launcher found, for its workers and for its caller.
#pragma once

#include <sys/resource.h>

namespace ddprun {

/// The launcher needs about six descriptors for each worker. The usual soft limit, 1024, is kept
/// low for programs that use select(), which the launcher does not; so it goes up to the hard one.
class DescriptorLimit {
 public:
  DescriptorLimit();
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;
  /// Puts it back.
  ~DescriptorLimit() { restore(); }

  /// Async-signal-safe: for a forked child.
  void restore() const noexcept;

 private:
  rlimit found_ = {};
};

}  // namespace ddprun
