// SPDX-License-Identifier: MIT
// The handwritten digits of examples/data, split into a training and a test set.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

namespace digits {

inline constexpr std::size_t kPixels = 64;  // 8 x 8
inline constexpr std::size_t kClasses = 10;
inline constexpr std::size_t kTrainingSamples = 1408;  // 22 batches of 64 on 1, 2, 4 or 8 ranks

/// Units: pixels are 0 (white) to 1 (black), row after row.
struct Samples {
  std::vector<double> pixels;  // size() x kPixels
  std::vector<int> labels;

  std::size_t size() const { return labels.size(); }
  void append(std::span<const double> row, int label);
  /// Copies of the samples at `indices`, in that order.
  Samples gather(std::span<const std::size_t> indices) const;
};

struct Data {
  Samples training;  // the first kTrainingSamples of the other rows
  Samples test;      // every fifth row, from the first
};

/// Reads a text file of one sample a line (64 pixels of 0..16, then the label, with commas
/// between), plain or compressed by gzip. Throws: std::runtime_error, one line naming the file, and
/// the line in it.
Data load(const std::filesystem::path& file);

}  // namespace digits
