// SPDX-License-Identifier: MIT
// The kernels of the programs that are tested with the fake CUDA runtime, compiled for CPUs.
#include <cstddef>

#include "doubles/cuda_on_cpu.h"
#include "kernels.cuh"
#include "programs/flat_bf16_kernel.cuh"

namespace digits {
namespace {

using cuda_on_cpu::kEveryThread;

const cuda_on_cpu::Kernels kernels = {
    {"digits::gather_rows<float>", gather_rows<float>, kEveryThread},
    {"digits::gather_rows<double>", gather_rows<double>, kEveryThread},
    {"digits::gather_rows<__nv_bfloat16>", gather_rows<__nv_bfloat16>, kEveryThread},
    {"digits::round_to_bf16", round_to_bf16, kEveryThread},
    {"digits::add_bias<float>", add_bias<float>, kEveryThread},
    {"digits::add_bias<double>", add_bias<double>, kEveryThread},
    {"digits::add_bias_relu<float>", add_bias_relu<float>, kEveryThread},
    {"digits::add_bias_relu<double>", add_bias_relu<double>, kEveryThread},
    {"digits::relu_backward<float>", relu_backward<float>, kEveryThread},
    {"digits::relu_backward<double>", relu_backward<double>, kEveryThread},
    {"digits::softmax_loss<float>", softmax_loss<float>, kEveryThread},
    {"digits::softmax_loss<double>", softmax_loss<double>, kEveryThread},
    {"digits::add_mean<float>", add_mean<float>, kEveryThread},
    {"digits::add_mean<double>", add_mean<double>, kEveryThread},
    {"digits::sum_rows<float>", sum_rows<float>, kEveryThread},
    {"digits::sum_rows<double>", sum_rows<double>, kEveryThread},
    {"digits::mark_right<float>", mark_right<float>, kEveryThread},
    {"digits::mark_right<double>", mark_right<double>, kEveryThread},
    {"flat_backward", flat_backward, kEveryThread},
};

}  // namespace
}  // namespace digits
