// SPDX-License-Identifier: MIT
// The compiled kernels as data: a fat binary in the plugin; where no CUDA compiler was used, a mere
// name, with which a test double finds their bodies.
#pragma once

#include <cstddef>
#include <span>

namespace ddprun {

std::span<const std::byte> kernel_image();
/// The version of CUDA whose compiler made it; 13000 for 13.0, 0 if none did.
int kernel_image_version();

}  // namespace ddprun
