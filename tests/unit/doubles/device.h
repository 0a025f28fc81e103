// SPDX-License-Identifier: MIT
// What the tests of the doubles share: memory and streams of the fake CUDA runtime, and a stream
// that stands still until the test lets it go on.
#pragma once

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "doubles/fake_cudart.h"

namespace ddprun::test {

inline constexpr int kDefault = 4;  // cudaMemcpyDefault

inline void ok(CudaError error) {
  if (error != kCudaSuccess) throw std::runtime_error(cudaGetErrorName(error));
}

inline CudaStream make_stream(unsigned flags = kCudaStreamNonBlocking) {
  CudaStream stream = nullptr;
  ok(cudaStreamCreateWithFlags(&stream, flags));
  return stream;
}

inline CudaEvent make_event(unsigned flags = kCudaEventDisableTiming) {
  CudaEvent event = nullptr;
  ok(cudaEventCreateWithFlags(&event, flags));
  return event;
}

template <class T>
T* device_array(std::size_t count) {
  void* pointer = nullptr;
  ok(cudaMalloc(&pointer, count * sizeof(T)));
  return static_cast<T*>(pointer);
}

template <class T>
T* device_copy(const std::vector<T>& values) {
  T* const copy = device_array<T>(values.size());
  ok(cudaMemcpy(copy, values.data(), values.size() * sizeof(T), kDefault));
  return copy;
}

/// After all work of `stream`.
template <class T>
std::vector<T> host_copy(const T* values, std::size_t count, CudaStream stream) {
  std::vector<T> copy(count);
  ok(cudaMemcpyAsync(copy.data(), values, count * sizeof(T), kDefault, stream));
  ok(cudaStreamSynchronize(stream));
  return copy;
}

/// Holds a stream until it is opened.
class Gate {
 public:
  explicit Gate(CudaStream stream) { ok(cudaLaunchHostFunc(stream, &Gate::hold, this)); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() {
    open();
    while (!passed_.load()) std::this_thread::yield();
  }
  void open() { open_.store(true, std::memory_order_relaxed); }

 private:
  static void hold(void* gate) {
    auto& self = *static_cast<Gate*>(gate);
    while (!self.open_.load(std::memory_order_relaxed)) std::this_thread::yield();
    self.passed_.store(true);
  }
  std::atomic<bool> open_{false};
  std::atomic<bool> passed_{false};
};

}  // namespace ddprun::test
