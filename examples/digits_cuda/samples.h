// SPDX-License-Identifier: MIT
// The digits in device memory. In is the type that matrix products read; the 17 shades are exact in
// each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "device.h"
#include "digits/digits.h"
#include "launch.h"

namespace digits {

/// Rows of pixels and their labels, on the device. Owns: nothing.
template <class In>
struct Batch {
  const In* pixels;
  const int* labels;
  int rows;
};

template <class In>
class DeviceSamples {
 public:
  /// Blocks: until the samples are on the device.
  DeviceSamples(const Samples& samples, cudaStream_t stream)
      : pixels_(samples.pixels.size()), labels_(samples.size()) {
    std::vector<In> pixels;
    pixels.reserve(samples.pixels.size());
    for (const double pixel : samples.pixels)
      pixels.push_back(static_cast<In>(static_cast<float>(pixel)));
    copy_to_device(std::span<const In>(pixels), pixels_.data(), stream);
    copy_to_device(std::span(samples.labels), labels_.data(), stream);
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
  Batch<In> all() const {
    return {pixels_.data(), labels_.data(), static_cast<int>(labels_.size())};
  }

 private:
  DeviceArray<In> pixels_;
  DeviceArray<int> labels_;
};

/// Gathers batches on the device, so that a step copies nothing from the host.
template <class In>
class BatchLoader {
 public:
  BatchLoader(const Samples& samples, std::size_t indices_per_epoch, std::size_t batch_size,
              cudaStream_t stream)
      : samples_(samples, stream),
        indices_(indices_per_epoch),
        pixels_(batch_size * kPixels),
        labels_(batch_size),
        stream_(stream) {}

  /// `indices` must stay as they are until the stream has been synchronised.
  void set_indices(std::span<const std::size_t> indices) {
    copy_to_device(indices, indices_.data(), stream_);
  }
  /// The samples at indices begin, begin + 1, ...; valid until the next call, in stream order.
  Batch<In> load(std::size_t begin, std::size_t size) {
    const int rows = static_cast<int>(size);
    const Batch<In> all = samples_.all();
    launch::gather_rows(all.pixels, all.labels, indices_.data() + begin, rows,
                        static_cast<int>(kPixels), pixels_.data(), labels_.data(), stream_);
    return {pixels_.data(), labels_.data(), rows};
  }

 private:
  DeviceSamples<In> samples_;
  DeviceArray<std::size_t> indices_;
  DeviceArray<In> pixels_;
  DeviceArray<int> labels_;
  cudaStream_t stream_;
};

}  // namespace digits
