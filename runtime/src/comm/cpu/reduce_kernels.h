// SPDX-License-Identifier: MIT
// The inner loops of reductions: one table of functions per instruction set, filled from one source
// (reduce_kernels.inc). The files compiled for an instruction set include this header, so it may
// include nothing else: an inline function of std compiled with -mavx512f could be the copy that
// the linker keeps for the whole program.
#pragma once

#include <cstddef>

namespace ddprun {

/// Reduces in[0..n) over `count` elements in rank order, element by element, and writes the result
/// into every in[r].
using ReduceInPlace = void (*)(void* const* in, int n, std::size_t count);
/// The same with one destination, which may be none of the inputs.
using ReduceTo = void (*)(void* out, const void* const* in, int n, std::size_t count);
/// Takes `out_bytes` out of a slot and puts `next_bytes` of the next piece in, in one pass. Every
/// line that is read is written too: it then stays with this core, and a line moves from core to
/// core about eight times faster when its last access was a write.
using SwapSlot = void (*)(void* out, void* slot, const void* next, std::size_t out_bytes,
                          std::size_t next_bytes);

/// Indexed by DType and ReduceOp, in the order of those enums. Integers have no avg (null).
struct ReduceKernels {
  const char* isa;
  ReduceInPlace in_place[4][4];
  ReduceTo to[4][4];
  SwapSlot swap_slot;
};

}  // namespace ddprun
