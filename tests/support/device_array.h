// SPDX-License-Identifier: MIT
// Arrays in the memory of a GPU, real or a double, for tests: filled from the host and read back.
#pragma once

#include <ddprun/cuda.h>
#include <ddprun/deadline.h>
#include <ddprun/error.h>
#include <ddprun/tensor_view.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cuda/cuda_api.h"
#include "cuda/float16.h"

namespace ddprun::test {

template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::f32;
}
template <>
constexpr DType dtype_of<double>() {
  return DType::f64;
}
template <>
constexpr DType dtype_of<Bf16>() {
  return DType::bf16;
}
template <>
constexpr DType dtype_of<F16>() {
  return DType::f16;
}

/// A stream of the current device that no other waits for.
class OwnStream {
 public:
  OwnStream() {
    require_cuda(api_, api_.cudaStreamCreateWithPriority(&stream_, kCudaStreamNonBlocking, 0),
                 "cudaStreamCreateWithPriority");
  }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream() { api_.cudaStreamDestroy(stream_); }

  operator Stream() const { return {stream_}; }
  CudaStream handle() const { return stream_; }

  /// Throws: TimeoutError when the stream is not done in time.
  void wait(Deadline deadline = Deadline::after(std::chrono::seconds(60))) const {
    for (;;) {
      const CudaError status = api_.cudaStreamQuery(stream_);
      if (status != kCudaErrorNotReady) return require_cuda(api_, status, "cudaStreamQuery");
      if (deadline.expired()) throw TimeoutError("[test] the stream is not done");
      std::this_thread::sleep_for(std::chrono::microseconds(10));  // leaves a double its CPU
    }
  }

 private:
  const CudaApi& api_ = cuda_api();
  CudaStream stream_ = nullptr;
};

/// Starts `shift` elements after an address of 256 bytes' alignment; `kGuard` bytes on either side
/// are watched.
template <class T>
class DeviceArray {
 public:
  DeviceArray(const OwnStream& stream, const std::vector<T>& values, std::size_t shift = 0)
      : stream_(stream),
        first_(kGuard + shift * sizeof(T)),
        numel_(values.size()),
        bytes_(first_ + numel_ * sizeof(T) + kGuard),
        memory_(cuda::allocate(bytes_)) {
    std::vector<std::byte> all(bytes_, kGuardByte);
    std::copy_n(reinterpret_cast<const std::byte*>(values.data()), numel_ * sizeof(T),
                all.data() + first_);
    copy(memory_.get(), all.data(), bytes_);
  }

  TensorView view() const {
    return {memory_.get() + first_, numel_, dtype_of<T>(), {DeviceType::cuda, 0}};
  }

  /// Throws: Error when a byte outside the array has been written.
  std::vector<T> read() const {
    std::vector<std::byte> all(bytes_);
    copy(all.data(), memory_.get(), bytes_);
    for (std::size_t i = 0; i < bytes_; ++i)
      if ((i < first_ || i >= first_ + numel_ * sizeof(T)) && all[i] != kGuardByte)
        throw Error(
            "[test] a kernel wrote outside its array, at byte " +
            std::to_string(static_cast<std::ptrdiff_t>(i) - static_cast<std::ptrdiff_t>(first_)));
    std::vector<T> values(numel_);
    std::copy_n(all.data() + first_, numel_ * sizeof(T),
                reinterpret_cast<std::byte*>(values.data()));
    return values;
  }

 private:
  static constexpr std::size_t kGuard = 256;
  static constexpr std::byte kGuardByte{0xd7};

  void copy(void* to, const void* from, std::size_t bytes) const {
    const CudaApi& api = cuda_api();
    require_cuda(api, api.cudaMemcpyAsync(to, from, bytes, kCudaMemcpyDefault, stream_.handle()),
                 "cudaMemcpyAsync");
    stream_.wait();
  }

  const OwnStream& stream_;
  std::size_t first_, numel_, bytes_;
  std::shared_ptr<std::byte[]> memory_;
};

}  // namespace ddprun::test
