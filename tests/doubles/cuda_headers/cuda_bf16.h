// SPDX-License-Identifier: MIT
// Stands in for CUDA's header of this name where kernels are compiled for CPUs (cuda_on_cpu.h): the
// type and the two conversions that they use, rounding to nearest even. NaN stays NaN.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

struct __nv_bfloat16 {
  std::uint16_t bits;
};

inline float __bfloat162float(__nv_bfloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

inline __nv_bfloat16 __float2bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return {0x7fff};
  return {static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}
