// SPDX-License-Identifier: MIT
// Fake NCCL: the arithmetic of collectives.
#pragma once

#include <cstddef>
#include <vector>

#include "doubles/fake_nccl.h"

namespace ddprun::doubles {

inline constexpr NcclRedOp kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4;
/// User-made operations have numbers from here on.
inline constexpr NcclRedOp kFirstOwnOp = 5;

/// 0: no such type.
std::size_t bytes_of(NcclDataType type);
/// The scalar as it is in memory of the type; only for floating types and integers of 32 or 64
/// bits.
double scalar_of(NcclDataType type, const void* scalar);

/// out[i] = the sources' elements i put together, in the order of the sources. `op`: kSum to kAvg,
/// or kFirstOwnOp for a sum of what was multiplied by `scalar`.
void reduce(std::byte* out, const std::vector<const std::byte*>& sources, std::size_t count,
            NcclDataType type, NcclRedOp op, double scalar);

}  // namespace ddprun::doubles
