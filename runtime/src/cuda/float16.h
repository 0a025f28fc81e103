// SPDX-License-Identifier: MIT
// The two 16-bit floating point types as storage: arithmetic is done in f32. Conversions round to
// nearest, ties to even; NaN stays NaN, what is too large becomes infinite.
#pragma once

#include <bit>
#include <cstdint>

#include "cuda/host_device.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace ddprun {

/// The upper half of an f32: 8 bits of exponent, 7 of mantissa.
struct Bf16 {
  std::uint16_t bits;
};

/// IEEE 754 binary16: 5 bits of exponent, 10 of mantissa.
struct F16 {
  std::uint16_t bits;
};

__host__ __device__ inline float to_f32(float value) { return value; }

__host__ __device__ inline float to_f32(Bf16 value) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
#else
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
#endif
}

__host__ __device__ inline float to_f32(F16 value) {
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(value.bits));
#else
  const std::uint32_t sign = (value.bits & 0x8000u) << 16;
  const std::uint32_t rest = value.bits & 0x7fffu;
  if (rest < 0x0400u) {  // subnormal: a multiple of 2^-24
    const auto magnitude = std::bit_cast<std::uint32_t>(static_cast<float>(rest) * 0x1p-24f);
    return std::bit_cast<float>(sign | magnitude);
  }
  const std::uint32_t exponent_shift = rest < 0x7c00u ? 112u << 23 : 224u << 23;
  return std::bit_cast<float>(sign | ((rest << 13) + exponent_shift));
#endif
}

/// round_to<T>(x): x as a T.
template <class T>
__host__ __device__ T round_to(float value);

template <>
__host__ __device__ inline float round_to<float>(float value) {
  return value;
}

template <>
__host__ __device__ inline Bf16 round_to<Bf16>(float value) {
#ifdef __CUDA_ARCH__
  return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
#else
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (value != value) return {static_cast<std::uint16_t>((bits >> 16) | 0x0040u)};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
#endif
}

template <>
__host__ __device__ inline F16 round_to<F16>(float value) {
#ifdef __CUDA_ARCH__
  return {__half_as_ushort(__float2half_rn(value))};
#else
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t rest = bits & 0x7fffffffu;
  std::uint32_t half = 0;
  if (rest > 0x7f800000u) {
    half = 0x7e00u;
  } else if (rest >= 0x477ff000u) {  // 65520 and above
    half = 0x7c00u;
  } else if (rest < 0x38800000u) {  // below 2^-14: the spacing of f32 from 0.5 on is a subnormal's
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest) + 0.5f) - 0x3f000000u;
  } else {
    half = (rest - (112u << 23) + 0x0fffu + ((rest >> 13) & 1u)) >> 13;
  }
  return {static_cast<std::uint16_t>(sign | half)};
#endif
}

}  // namespace ddprun
