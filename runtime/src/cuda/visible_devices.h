// SPDX-License-Identifier: MIT
// Which GPUs this process can use.
#pragma once

#include <string>

namespace ddprun {

/// 0 when there are none, for whatever reason.
int visible_device_count();

/// Empty when this process can use GPU `device`; else why not, in one line without a tag.
std::string why_device_unavailable(int device);

}  // namespace ddprun
