// SPDX-License-Identifier: MIT
// The compiled kernels, taken into the plugin as they are; see kernel_image.h.
#include "cuda/kernel_image.h"

// DDPRUN_KERNEL_IMAGE: the file that the build has made of kernels.cu
asm(R"(
    .pushsection .rodata
    .balign 64
    .hidden ddprun_kernel_image_begin
    .global ddprun_kernel_image_begin
ddprun_kernel_image_begin:
    .incbin ")" DDPRUN_KERNEL_IMAGE R"("
    .hidden ddprun_kernel_image_end
    .global ddprun_kernel_image_end
ddprun_kernel_image_end:
    .popsection
)");

extern "C" {
extern const std::byte ddprun_kernel_image_begin[];
extern const std::byte ddprun_kernel_image_end[];
}

namespace ddprun {

std::span<const std::byte> kernel_image() {
  return {ddprun_kernel_image_begin, ddprun_kernel_image_end};
}

int kernel_image_version() { return DDPRUN_KERNEL_IMAGE_VERSION; }

}  // namespace ddprun
