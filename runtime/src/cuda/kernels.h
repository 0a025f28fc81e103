// SPDX-License-Identifier: MIT
// Launches the kernels that the plugin carries as data; nothing here waits for the device.
//
// Threads: any; the calling thread's device must be that of the memory.
// Throws:  DeviceError when CUDA refuses, or is too old to load kernels from data.
#pragma once

#include <ddprun/tensor_view.h>

#include <cstddef>

#include "base/device_kernels.h"
#include "cuda/cuda_api.h"

namespace ddprun {

/// Loads all kernels onto the calling thread's device, since the first launch of one that is loaded
/// lazily can wait for work that is under way. Nothing happens where they cannot be loaded: not all
/// groups launch one, and the launch says why not.
/// https://docs.nvidia.com/cuda/cuda-c-programming-guide/#lazy-loading
void prepare_kernels();

/// `arguments` is the kernel's struct of device_kernels.h. `blocks`: how many have work; kernels
/// loop, so that no more are launched than the device holds at once, by its own account.
void launch_kernel(DeviceKernel kernel, const void* arguments, std::size_t blocks,
                   CudaStream stream);

/// Multiplies every element; f32, f64, f16 and bf16, the last two in f32 and rounded once.
/// Cost: 2 * size_of(dtype) bytes per element.
void scale(TensorView target, double factor, CudaStream stream);

}  // namespace ddprun
