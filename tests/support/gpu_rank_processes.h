// SPDX-License-Identifier: MIT
// Ranks as processes with a GPU each, over doubles that are told what to do wrong.
#pragma once

#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "support/gpu_ranks.h"
#include "support/rank_processes.h"

namespace ddprun::test {

constexpr std::chrono::seconds kPatience(20);
constexpr std::chrono::milliseconds kShort(1500);
constexpr std::int64_t kPromisedUs = 2'000'000;
constexpr std::size_t kNumel = 1000;

using Faults = std::map<std::string, std::string>;

/// Ranks whose doubles do what the faults say; all ranks, or `only` one.
inline RankProcesses gpu_ranks(int n, std::chrono::milliseconds timeout, const Faults& faults,
                               const RankProcesses::Fn& fn, int only = -1) {
  return {n, timeout, fn,
          [faults, only](int rank) {
            if (only >= 0 && rank != only) return;
            for (const auto& [name, value] : faults) ::setenv(name.c_str(), value.c_str(), 1);
          },
          "nccl"};
}

/// Memory and a stream of a rank.
struct Buffer {
  explicit Buffer(ProcessGroup& group)
      : Buffer(group, group.allocate(kNumel * sizeof(float), group.device())) {}
  Buffer(const ProcessGroup& group, std::shared_ptr<std::byte[]> of)
      : memory(std::move(of)), view{memory.get(), kNumel, DType::f32, group.device()} {}

  std::shared_ptr<std::byte[]> memory;
  TensorView view;
  GpuStream stream;
};

inline Work start_reduce(ProcessGroup& group, Buffer& buffer) {
  return group.all_reduce(buffer.view, ReduceOp::sum, buffer.stream.get(), true);
}

/// One all_reduce, seen through.
inline void reduce(ProcessGroup& group, Buffer& buffer) { start_reduce(group, buffer).wait(); }

inline void reduce_for_ever(ProcessGroup& group, const Voice& voice) {
  Buffer buffer(group);
  for (int step = 0;; ++step) {
    reduce(group, buffer);
    if (step == 3) voice.say("ready");
  }
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline Failure failure_from(RankProcesses& ranks, int rank) {
  return Failure::parse(ranks.hear(rank, Deadline::after(kPatience)));
}

}  // namespace ddprun::test
