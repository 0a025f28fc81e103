// SPDX-License-Identifier: MIT
// The lines that the digits job prints, by which ranks and runs are compared.
#pragma once

#include <ddprun/process_group.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "options.h"

namespace digits {

/// FNV-1a, 64 bits.
class Hash {
 public:
  void add(std::span<const std::byte> bytes) {
    for (const std::byte b : bytes)
      value_ = (value_ ^ std::to_integer<std::uint64_t>(b)) * 0x100000001b3;
  }
  unsigned long long value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

/// What one rank has done in all epochs so far.
struct Totals {
  Hash indices;  // of the samples it has read
  std::size_t samples_per_epoch = 0;
  std::size_t steps = 0;
  std::int64_t bytes_reduced = 0;  // by DistributedDataParallel
  std::size_t buckets = 0;
  double seconds = 0;  // in the training loop
};

/// Rank 0 speaks for all after an epoch and at the end, where every rank also speaks for itself.
class Report {
 public:
  Report(ddprun::ProcessGroup& group, const Options& options);

  /// Units: `seconds` of the training loop.
  void print_epoch(int epoch, double loss, double accuracy, double seconds);
  /// Blocks: until all ranks have called it.
  void print_end(const Totals& totals, Hash weights);

 private:
  void draw_bar(int epochs_done) const;
  void erase_bar() const;

  ddprun::ProcessGroup& group_;
  int epochs_;
  bool bar_shown_;  // on stderr, below the lines on stdout, when somebody watches a terminal
  double loss_ = 0;
  double accuracy_ = 0;
};

}  // namespace digits
