// SPDX-License-Identifier: MIT
// Which process something was made in. A forked child has a copy of everything but the threads, so
// that what works with other processes must refuse to work there.
#pragma once

#include <cstdint>

namespace ddprun {

class ForkMark {
 public:
  /// Throws: DeviceError.
  ForkMark();
  /// Whether this process was forked, directly or not, from the one that made the mark. Costs one
  /// load; getpid() is a system call. Not seen: children of a bare clone() or _Fork().
  bool in_child() const;

 private:
  std::uint32_t forks_;
};

}  // namespace ddprun
