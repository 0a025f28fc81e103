// SPDX-License-Identifier: MIT
// What a person needs to know when NCCL fails.
#pragma once

#include <string>
#include <string_view>

#include "comm/nccl/nccl_api.h"

namespace ddprun {

/// "CALL: remote error (6): NCCL's last warning; interface ...; what to try"
std::string describe(const NcclApi& api, std::string_view call, NcclResult result);

/// The interface that NCCL was told to use, and what to try when ranks cannot reach each other.
std::string network_advice();

}  // namespace ddprun
