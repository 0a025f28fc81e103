// SPDX-License-Identifier: MIT
// The first failure and the exception for it; see group_failure.h.
#include "comm/nccl/group_failure.h"

#include <ddprun/error.h>

namespace ddprun {

void GroupFailure::record(const Failure& failure) {
  const std::lock_guard lock(mutex_);
  if (known()) return;
  failure_ = failure;
  known_.store(true, std::memory_order_release);
}

void GroupFailure::raise() const {
  if (failure_.kind == FailureKind::silent) throw TimeoutError(failure_.text);
  if (failure_.rank != rank_) throw RemoteError(failure_.rank, failure_.text);
  if (failure_.kind == FailureKind::failed) throw DeviceError(failure_.text);
  throw Error(failure_.text);
}

}  // namespace ddprun
