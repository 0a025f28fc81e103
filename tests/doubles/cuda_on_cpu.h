// SPDX-License-Identifier: MIT
// Kernels on the CPU: with this header before it, a .cu file that holds kernels alone compiles as
// C++, and the fake CUDA runtime runs them. A file like this becomes a source of `double_cudart`
// (or of a program that links it):
//
//   #include "doubles/cuda_on_cpu.h"
//   #include "cuda/pack.cu"
//   static const cuda_on_cpu::Kernels kernels = {{"ddprun_pack", ddprun_pack}};
//
// A block is run as ONE thread: blockDim is {1, 1, 1} and __syncthreads() does nothing. That is
// right for grid-stride loops and for sums in shared memory written in terms of blockDim, wrong for
// a kernel that takes blockDim for granted, or warps. A kernel without barriers that has an element
// per thread says {"name", name, cuda_on_cpu::kEveryThread}: all threads of the launch, in turn.
// Pointers are found in arguments, also within structs: any aligned word that is an address of
// device memory becomes the address of its bytes. Pointers that lie IN device memory are not found:
// keep offsets there.
#pragma once

#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <tuple>
#include <type_traits>
#include <utility>

#include "doubles/kernel_body.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__  // of the one thread; what is static in every thread must be small

using dim3 = ddprun::CudaDim3;
using uint3 = ddprun::CudaDim3;
inline thread_local dim3 gridDim, blockDim;
inline thread_local uint3 blockIdx, threadIdx;

inline void __syncthreads() {}
inline void __threadfence() {}

/// Atomic on the device, where other streams may be at work.
template <class T>
T atomicAdd(T* target, T value) {
  T seen;
  __atomic_load(target, &seen, __ATOMIC_RELAXED);
  for (;;) {
    T sum = static_cast<T>(seen + value);
    if (__atomic_compare_exchange(target, &seen, &sum, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
      return seen;
  }
}

template <class T>
T __ldg(const T* source) {
  return *source;
}

namespace cuda_on_cpu {

enum Threads { kOnePerBlock, kEveryThread };

/// Calls fn for every point of a box, x fastest.
template <class Fn>
void for_each(dim3 box, Fn fn) {
  for (unsigned z = 0; z < box.z; ++z)
    for (unsigned y = 0; y < box.y; ++y)
      for (unsigned x = 0; x < box.x; ++x) fn(uint3{x, y, z});
}

template <class... Arguments, std::size_t... i>
void run_grid(void (*kernel)(Arguments...), void** arguments, dim3 grid, dim3 block,
              std::index_sequence<i...>) {
  gridDim = grid;
  blockDim = block;
  for_each(grid, [&](uint3 in_grid) {
    blockIdx = in_grid;
    for_each(block, [&](uint3 in_block) {
      threadIdx = in_block;
      kernel(*static_cast<std::remove_cv_t<Arguments>*>(arguments[i])...);
    });
  });
}

struct Kernel {
  template <class... Arguments>
  Kernel(const char* name, void (*kernel)(Arguments...), Threads threads = kOnePerBlock)
      : body{name, {sizeof(Arguments)...}, {}} {
    static_assert((std::is_trivially_copyable_v<Arguments> && ...));
    body.run = [kernel, threads](void** arguments, dim3 grid, dim3 block) {
      run_grid(kernel, arguments, grid, threads == kOnePerBlock ? dim3{} : block,
               std::index_sequence_for<Arguments...>());
    };
  }
  ddprun::doubles::KernelBody body;
};

/// Made before main: announces kernels.
struct Kernels {
  Kernels(std::initializer_list<Kernel> list) {
    for (const Kernel& kernel : list) ddprun::doubles::add_kernel(kernel.body);
  }
};

}  // namespace cuda_on_cpu
