// SPDX-License-Identifier: MIT
// Random permutations, draw for draw those of torch.randperm on the CPU.
#pragma once

#include <ddprun/export.h>

#include <cstddef>
#include <random>
#include <vector>

namespace ddprun {

/// A permutation of 0..n-1. Takes n-1 numbers from `generator`. Below 214 748 364 elements every
/// PyTorch draws this way; above, newer ones draw 64-bit numbers.
DDPRUN_API std::vector<std::size_t> randperm(std::size_t n, std::mt19937& generator);

}  // namespace ddprun
