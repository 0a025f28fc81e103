// SPDX-License-Identifier: MIT
// The kernels that the CUDA plugin carries and what each is given: one struct by value, which is
// the whole contract between host and device code. Knows no CUDA. Padding is spelled out, so that
// no byte of an argument is left to chance.
#pragma once

#include <ddprun/tensor_view.h>

#include <cstddef>
#include <cstdint>

namespace ddprun {

namespace cuda {
struct NormResult;
}

enum class DeviceKernel : std::uint8_t { cast, pack, sgd, adamw, square_sum, norm };
inline constexpr int kDeviceKernelCount = 6;

/// How many blocks have work when it is spread over elements, some for each thread.
constexpr std::size_t blocks_for(std::size_t numel) {
  constexpr std::size_t kElementsPerBlock = 1024;
  return numel / kElementsPerBlock + (numel % kElementsPerBlock != 0 ? 1 : 0);
}

/// out[i] = in[i] * factor; both may be the same memory.
struct CastArguments {
  static constexpr DeviceKernel kKernel = DeviceKernel::cast;
  const void* in;
  void* out;
  std::size_t numel;
  double factor;
  DType in_type, out_type;
  std::uint8_t padding[6] = {};
};

/// Part of one tensor and its place in the flat buffer. A distance, not an address: so all pointers
/// of a launch are arguments, where tools see them.
struct Chunk {
  static constexpr std::size_t kMaxNumel = std::size_t{64} << 10;
  std::ptrdiff_t place;  // bytes from PackArguments::origin
  std::size_t offset;    // elements in the flat buffer
  std::size_t numel;
};

/// Copies every chunk into the flat buffer, or out of it, times factor.
struct PackArguments {
  static constexpr DeviceKernel kKernel = DeviceKernel::pack;
  const Chunk* chunks;  // in device memory
  std::size_t chunk_count;
  void* origin;
  void* flat;
  double factor;
  DType chunk_type, flat_type;
  bool into_flat;
  std::uint8_t padding[5] = {};
};

/// momentum, copy, norm: null when there is none.
struct SgdArguments {
  static constexpr DeviceKernel kKernel = DeviceKernel::sgd;
  void* value;
  const void* gradient;
  void* momentum;
  void* copy;
  const cuda::NormResult* norm;
  std::size_t numel;
  double lr, momentum_factor;
  DType value_type, gradient_type, copy_type;
  std::uint8_t padding[5] = {};
};

/// copy, norm: null when there is none; `step` counts from 1 and is used without a norm.
struct AdamWArguments {
  static constexpr DeviceKernel kKernel = DeviceKernel::adamw;
  float* value;
  const void* gradient;
  float* first_moment;
  float* second_moment;
  void* copy;
  const cuda::NormResult* norm;
  std::size_t numel;
  double lr, beta1, beta2, eps, weight_decay;
  std::int64_t step;
  DType gradient_type, copy_type;
  std::uint8_t padding[6] = {};
};

/// First stage of the norm: every slot gets, or with `add` is increased by, the sum of the squares
/// of its own share of the elements.
struct SquareSumArguments {
  static constexpr DeviceKernel kKernel = DeviceKernel::square_sum;
  static constexpr std::size_t kSlots = 512;
  const void* gradient;
  double* slots;
  std::size_t numel;
  DType gradient_type;
  bool add;
  std::uint8_t padding[6] = {};
};

/// Second stage: the slots in their order.
struct NormArguments {
  static constexpr DeviceKernel kKernel = DeviceKernel::norm;
  const double* slots;
  cuda::NormResult* result;
  double unscale, max_norm;
};

}  // namespace ddprun
