// SPDX-License-Identifier: MIT
// The plugin's kernels for the fake CUDA runtime: the same sources, compiled for CPUs, for which
// the first header must come before them.
// clang-format off
#include "doubles/cuda_on_cpu.h"
#include "cuda/kernels.cu"
// clang-format on

static const cuda_on_cpu::Kernels kernels = {
    {"ddprun_cast", ddprun::ddprun_cast},
    {"ddprun_pack", ddprun::ddprun_pack},
    {"ddprun_sgd", ddprun::ddprun_sgd},
    {"ddprun_adamw", ddprun::ddprun_adamw},
    {"ddprun_square_sum", ddprun::ddprun_square_sum},
    {"ddprun_norm", ddprun::ddprun_norm},
};
