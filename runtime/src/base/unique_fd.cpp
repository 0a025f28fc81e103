// SPDX-License-Identifier: MIT
// Owns one file descriptor; see unique_fd.h.
#include "base/unique_fd.h"

#include <unistd.h>

namespace ddprun {

void UniqueFd::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);  // EINTR on Linux: closed all the same
  fd_ = fd;
}

}  // namespace ddprun
