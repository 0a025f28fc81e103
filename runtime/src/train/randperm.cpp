// SPDX-License-Identifier: MIT
// Fisher-Yates from the front, as torch.randperm; see randperm.h.
#include "train/randperm.h"

#include <numeric>
#include <utility>

namespace ddprun {

std::vector<std::size_t> randperm(std::size_t n, std::mt19937& generator) {
  std::vector<std::size_t> permutation(n);
  std::iota(permutation.begin(), permutation.end(), std::size_t{0});
  for (std::size_t i = 0; i + 1 < n; ++i) {
    const std::size_t step = generator() % (n - i);  // biased, as PyTorch's is
    std::swap(permutation[i], permutation[i + step]);
  }
  return permutation;
}

}  // namespace ddprun
