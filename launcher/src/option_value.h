// SPDX-License-Identifier: MIT
// The values of options: text to number, flag, or map of streams. Every error is one line that
// names where the value came from and what it is.
#pragma once

#include <ddprun/launch.h>

#include <string>
#include <vector>

namespace ddprun {

inline constexpr int kMaxRanksPerNode = 4096;
inline constexpr int kMaxRestarts = 1'000'000;
inline constexpr int kMaxShutdownSeconds = 7 * 24 * 3600;

/// One given value and where it came from.
struct OptionValue {
  std::string source;  // "--nproc-per-node" as spelled, or "PET_NPROC_PER_NODE"
  std::string text;    // "1" for a flag on the command line

  /// "--nproc-per-node 0" or "PET_NPROC_PER_NODE=0".
  std::string label() const;
};

/// All throw UsageError when the text is not what they read.
int parse_number(const OptionValue& value, int low, int high);
bool parse_flag(const OptionValue& value);
/// A number, `cpu`, `gpu`, or `auto` (gpu if there is one, else cpu).
int parse_nproc(const OptionValue& value);
/// "2" or "2:2"; a range of node counts is refused.
int parse_nnodes(const OptionValue& value);
/// "3" for every rank or "0:1,12:3" by local rank. One entry a rank; empty when none is named.
std::vector<Streams> parse_streams(const OptionValue& value, int nproc);

}  // namespace ddprun
