// SPDX-License-Identifier: MIT
// The little of CUDA that this example wraps: errors that throw, memory and a stream that go away
// by themselves, copies.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include <cuda_runtime_api.h>

namespace digits {

inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("[train_cuda] ") + what + ": " +
                             cudaGetErrorString(error));
}

class OwnedStream {
 public:
  OwnedStream() {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;
  ~OwnedStream() { cudaStreamDestroy(stream_); }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Memory of the current device, not set to anything.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t size) : size_(size) {
    void* memory = nullptr;
    if (size != 0) check(cudaMalloc(&memory, size * sizeof(T)), "cudaMalloc");
    memory_.reset(static_cast<T*>(memory));
  }
  T* data() { return memory_.get(); }
  const T* data() const { return memory_.get(); }
  std::size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(T* memory) const { cudaFree(memory); }
  };
  std::size_t size_;
  std::unique_ptr<T[], Free> memory_;
};

/// `from` must stay as it is until `stream` has been synchronised.
template <class T>
void copy_to_device(std::span<const T> from, T* to, cudaStream_t stream) {
  check(cudaMemcpyAsync(to, from.data(), from.size_bytes(), cudaMemcpyHostToDevice, stream),
        "cudaMemcpyAsync");
}

/// Blocks: until everything on `stream`, and then the copy, is done.
template <class T>
void copy_to_host(const T* from, std::span<T> to, cudaStream_t stream) {
  check(cudaMemcpyAsync(to.data(), from, to.size_bytes(), cudaMemcpyDeviceToHost, stream),
        "cudaMemcpyAsync");
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

}  // namespace digits
