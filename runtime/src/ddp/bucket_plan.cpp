// SPDX-License-Identifier: MIT
// PyTorch's bucket assignment; see bucket_plan.h.
#include "ddp/bucket_plan.h"

#include <algorithm>
#include <utility>

namespace ddprun {
namespace {

// The bucket that is being filled for one dtype and device.
struct OpenBucket {
  Bucket bucket;
  std::size_t closed_before = 0;  // which of the limits applies
};

OpenBucket& find_or_open(std::vector<OpenBucket>& open, const TensorView& gradient) {
  const auto found = std::ranges::find_if(open, [&](const OpenBucket& o) {
    return o.bucket.dtype == gradient.dtype && o.bucket.device == gradient.device;
  });
  if (found != open.end()) return *found;
  open.push_back({{gradient.dtype, gradient.device, {}, 0}, 0});
  return open.back();
}

}  // namespace

std::vector<Bucket> plan_buckets(std::span<const TensorView> gradients,
                                 std::span<const std::size_t> order,
                                 std::span<const std::size_t> limits) {
  std::vector<Bucket> closed;
  std::vector<OpenBucket> open;
  for (const std::size_t i : order) {
    OpenBucket& current = find_or_open(open, gradients[i]);
    current.bucket.slices.push_back({i, current.bucket.bytes});
    current.bucket.bytes += gradients[i].bytes();
    if (current.bucket.bytes < limits[std::min(current.closed_before, limits.size() - 1)]) continue;
    Bucket next{gradients[i].dtype, gradients[i].device, {}, 0};
    closed.push_back(std::exchange(current.bucket, std::move(next)));
    ++current.closed_before;
  }
  // By first gradient in `order`: PyTorch's order here is that of a hash map.
  std::erase_if(open, [](const OpenBucket& o) { return o.bucket.slices.empty(); });
  const auto position = [&](const OpenBucket& o) {
    return std::ranges::find(order, o.bucket.slices.front().parameter) - order.begin();
  };
  std::ranges::sort(open, {}, position);
  for (OpenBucket& o : open) closed.push_back(std::move(o.bucket));
  return closed;
}

}  // namespace ddprun
