// SPDX-License-Identifier: MIT
// Memory that several processes map: an anonymous file (memfd), so that nothing is left anywhere
// when they are killed and no limit of /dev/shm applies.
#pragma once

#include <cstddef>
#include <memory>

#include "base/unique_fd.h"

namespace ddprun {

/// One mapping. Ranks that are threads of one process share one, or ThreadSanitizer would be blind.
class Segment {
 public:
  /// Zeroed, resident (a full memory limit shows here, never as SIGBUS later), in huge pages when
  /// it is large enough and the kernel has them. `fd` is what another process needs for map().
  /// Throws: DeviceError with the size.
  static std::shared_ptr<Segment> create(std::size_t bytes, UniqueFd& fd);
  /// Throws: DeviceError, also when the file is smaller than `bytes` or may still shrink.
  static std::shared_ptr<Segment> map(int fd, std::size_t bytes);

  Segment(std::byte* data, std::size_t length) : data_(data), length_(length) {}
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  std::byte* data() const { return data_; }

 private:
  std::byte* data_;
  std::size_t length_;
};

}  // namespace ddprun
