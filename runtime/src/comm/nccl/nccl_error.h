// SPDX-License-Identifier: MIT
// What a person needs to know when NCCL fails.
#pragma once

#include <ddprun/error.h>

#include <chrono>
#include <string>
#include <string_view>

#include "comm/nccl/nccl_api.h"

namespace ddprun {

/// NCCL refused a call.
class NcclError : public DeviceError {
 public:
  NcclError(NcclResult result, const std::string& what) : DeviceError(what), result_(result) {}
  NcclResult result() const { return result_; }

 private:
  NcclResult result_;
};

/// How long the rank at fault is looked for after a `result` that may be another rank's: NCCL hears
/// of a death before others do, and does not say whose it is. Zero for one that is this rank's own.
std::chrono::milliseconds time_for_culprit(NcclResult result);

/// "CALL: remote error (6): NCCL's last warning; interface ...; what to try"
std::string describe(const NcclApi& api, std::string_view call, NcclResult result);

/// The interface that NCCL was told to use, and what to try when ranks cannot reach each other.
std::string network_advice();

}  // namespace ddprun
