// SPDX-License-Identifier: MIT
// What one rank shows the others of its machine: the layout of the doorbell page. Every rank maps
// every page. Only the owner writes to a page, except for: poison and sleepers (anybody), payloads
// (the rank that combines), Central (anybody, in rank 0's page).
//
//   bell[2]   who arrived where and asks for what; step k of the group uses bell[k & 1]. Two are
//             enough: who rings k + 2 has seen everybody ring k + 1, hence done with k
//   in, out   progress of the exchange slots
//   lifeline  robust mutex, held by a thread that lives as long as the rank's group
//   box[2]    payloads that do not fit a bell
#pragma once

#include <ddprun/backend.h>
#include <ddprun/tensor_view.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <pthread.h>

namespace ddprun {

enum class CallKind : std::uint8_t { all_reduce, broadcast, barrier, allocate };

/// What a rank asks for: the same on all ranks, or the operation fails.
struct Call {
  CallKind kind = CallKind::barrier;
  ReduceOp op = ReduceOp::sum;
  DType dtype = DType::f32;
  std::int32_t root = 0;
  std::uint64_t numel = 0;  // allocate: bytes

  friend bool operator==(const Call&, const Call&) = default;
};

/// A counter that others wait for: 31 bits, wrapping.
struct Flag {
  static constexpr std::uint32_t kPoison = 1u << 31;  // whoever waits here waits in vain

  std::atomic<std::uint32_t> seq{0};
  std::atomic<std::uint32_t> sleepers{0};
  std::atomic<std::int32_t> cpu{-1};  // where the owner ran when it last rang

  static bool reached(std::uint32_t seq, std::uint32_t want) {
    return static_cast<std::int32_t>((seq << 1) - (want << 1)) >= 0;
  }
  bool reached(std::uint32_t want) const {
    return reached(seq.load(std::memory_order_acquire), want);
  }
  void post(std::uint32_t value);
  void poison();
};

constexpr std::size_t kLine = 64;

struct alignas(kLine) Bell {
  static constexpr std::size_t kPayload = 32;

  Flag flag;
  std::uint32_t allocation =
      0;  // where the data is: in this allocation, at `offset`; 0 = not there
  Call call;
  union {
    std::byte payload[kPayload] = {};  // the data itself, when it is that small
    std::uint64_t offset;
  };
};
static_assert(sizeof(Bell) == kLine);

/// A pair of lines: the processor fetches them together.
struct alignas(2 * kLine) LoneFlag : Flag {};

/// The first failure of the group; later ones are its consequences.
enum class Cause : std::uint32_t { none, died, left, silent, differs, aborted, failed };

/// Shared by all ranks, in rank 0's page.
struct Central {
  alignas(2 * kLine) std::atomic<std::uint64_t> failure{0};   // cause << 32 | rank; set once
  alignas(2 * kLine) std::atomic<std::uint32_t> arrivals{0};  // at operations that are combined
  std::atomic<std::int32_t> combiner{-1};                     // who arrived last
  // Rung by the combiner with the number of operations combined: not with the step, of which any
  // number may pass without combining. One is enough: nobody combines n + 1 before all have seen n.
  LoneFlag done;
};

constexpr std::size_t kBoxBytes = 32 * 1024;
constexpr std::size_t kReasonBytes = 1024;

struct Page {
  Bell bell[2];
  LoneFlag in;
  LoneFlag out;
  Central central;
  alignas(2 * kLine) pthread_mutex_t lifeline;
  char reason[kReasonBytes];  // why the owner failed or aborted; written before Central::failure
  alignas(4096) std::byte box[2][kBoxBytes];
};

}  // namespace ddprun
