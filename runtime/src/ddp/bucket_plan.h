// SPDX-License-Identifier: MIT
// Which gradients are reduced together, and where each of them lies. Pure: the same arguments give
// the same plan on every rank.
#pragma once

#include <ddprun/export.h>
#include <ddprun/tensor_view.h>

#include <cstddef>
#include <span>
#include <vector>

namespace ddprun {

/// The slice of one gradient.
/// Units: bytes from the start of the bucket.
struct Slice {
  std::size_t parameter = 0;
  std::size_t offset = 0;
};

/// Gradients of one dtype and device, packed without gaps, so that exactly the parameters' bytes
/// are reduced.
struct Bucket {
  DType dtype = DType::f32;
  Device device{};
  std::vector<Slice> slices;
  std::size_t bytes = 0;
};

/// Fills buckets in `order`, one open bucket per dtype and device at a time. The gradient that
/// makes a bucket reach its limit is the last one in it. `limits` are those of the first, second,
/// ... bucket of each dtype and device; the last one repeats. Buckets come in the order in which
/// they were closed; those still open at the end follow by their first gradient. This is the
/// assignment PyTorch makes when it rebuilds buckets after the first backward. Shape: `order` is a
/// permutation of the indices of `gradients`; of these only numel, dtype and
///        device count.
DDPRUN_API std::vector<Bucket> plan_buckets(std::span<const TensorView> gradients,
                                            std::span<const std::size_t> order,
                                            std::span<const std::size_t> limits);

}  // namespace ddprun
