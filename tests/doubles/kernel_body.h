// SPDX-License-Identifier: MIT
// A kernel as the fake CUDA runtime knows it: a name and how to run it on a CPU.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "cuda/cuda_api.h"

namespace ddprun::doubles {

struct KernelBody {
  /// As cudaLibraryGetKernel is given it; of a kernel that nvcc compiled into a program its mangled
  /// name, or what that means without parameters ("digits::relu<float>").
  std::string name;
  std::vector<std::size_t> argument_bytes;
  /// Runs the whole grid, on one thread.
  std::function<void(void** arguments, CudaDim3 grid, CudaDim3 block)> run;
};

[[gnu::visibility("default")]] void add_kernel(KernelBody body);

}  // namespace ddprun::doubles
