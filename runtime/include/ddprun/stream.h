// SPDX-License-Identifier: MIT
// The queue of device work that an operation is ordered after.
#pragma once

namespace ddprun {

/// A CUDA stream (cudaStream_t), as an opaque pointer so that no CUDA header is needed. The empty
/// one is the device's default stream. Operations on CPU memory ignore it.
struct Stream {
  void* handle = nullptr;
  friend bool operator==(const Stream&, const Stream&) = default;
};

}  // namespace ddprun
