// SPDX-License-Identifier: MIT
// GPUs for a program that has CUDA itself: what there is, and kernels that a data-parallel training
// step needs around its all-reduce. They launch on the caller's stream and never wait for the
// device or allocate, so they may be captured in a CUDA graph.
//
// Threads: any; the calling thread's device must be that of the tensors (cudaSetDevice).
// Throws:  DeviceError when there is no GPU or CUDA refuses; UsageError for tensors that do not fit
//          together, before anything is launched.
#pragma once

#include <ddprun/export.h>
#include <ddprun/optimizer.h>
#include <ddprun/stream.h>
#include <ddprun/tensor_view.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace ddprun::cuda {

/// Empty when this process can use GPU `device`, an index into what CUDA_VISIBLE_DEVICES shows;
/// else why not, in one line. Never throws for a machine without GPUs.
DDPRUN_API std::string why_unavailable(int device = 0);
/// How many GPUs this process sees; 0 when there are none.
DDPRUN_API int device_count();

/// `stream` of the program (cudaStream_t) as ddprun's calls take it.
inline Stream stream(void* cuda_stream) { return {cuda_stream}; }

/// Device memory, zeroed. Owns: the caller. Blocks: until it is zeroed.
DDPRUN_API std::shared_ptr<std::byte[]> allocate(std::size_t bytes, int device = 0);

/// Sets every element to 0, in the order of `stream`.
DDPRUN_API void fill_zero(TensorView target, Stream stream);

}  // namespace ddprun::cuda
