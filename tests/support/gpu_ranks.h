// SPDX-License-Identifier: MIT
// Ranks as threads with a GPU each, for tests over the doubles of CUDA and NCCL: streams, memory
// and copies, so that a test reads as a program that uses CUDA.
#pragma once

#include <ddprun/error.h>
#include <ddprun/hash_store.h>
#include <ddprun/process_group.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cuda/cuda_api.h"
#include "support/group_of_threads.h"

namespace ddprun::test {

/// A stream of the program, beside which the group's own one runs.
class GpuStream {
 public:
  GpuStream() {
    require_cuda(api_, api_.cudaStreamCreateWithPriority(&stream_, kCudaStreamNonBlocking, 0),
                 "cudaStreamCreateWithPriority");
  }
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;
  ~GpuStream() { api_.cudaStreamDestroy(stream_); }

  Stream get() const { return {stream_}; }
  /// In the stream's order, like a kernel that writes or reads `at`. `host` must live until then.
  void write(void* at, const void* host, std::size_t bytes) { copy(at, host, bytes); }
  void read(void* host, const void* at, std::size_t bytes) { copy(host, at, bytes); }
  /// Waits until all that is on the stream has finished.
  void finish(Deadline deadline = Deadline::after(kTestTimeout)) const {
    for (;;) {
      const CudaError error = api_.cudaStreamQuery(stream_);
      if (error != kCudaErrorNotReady) return require_cuda(api_, error, "cudaStreamQuery");
      if (deadline.expired()) throw TimeoutError("the stream has not finished");
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  void copy(void* to, const void* from, std::size_t bytes) {
    require_cuda(api_, api_.cudaMemcpyAsync(to, from, bytes, kCudaMemcpyDefault, stream_),
                 "cudaMemcpyAsync");
  }

  const CudaApi& api_ = cuda_api();
  CudaStream stream_ = nullptr;
};

/// Elements in GPU memory of a rank.
template <class T>
class GpuArray {
 public:
  GpuArray(std::size_t numel, DType dtype, Device device)
      : numel_(numel), dtype_(dtype), device_(device) {
    const CudaApi& api = cuda_api();
    require_cuda(api, api.cudaMalloc(&data_, std::max<std::size_t>(numel * sizeof(T), 1)),
                 "cudaMalloc");
  }
  GpuArray(const GpuArray&) = delete;
  GpuArray& operator=(const GpuArray&) = delete;
  ~GpuArray() { cuda_api().cudaFree(data_); }

  TensorView view() const { return {data_, numel_, dtype_, device_}; }
  std::size_t bytes() const { return numel_ * sizeof(T); }

  /// On `stream`, now or later; returns once the values are in memory.
  void fill(GpuStream& stream, const std::vector<T>& values) const {
    stream.write(data_, values.data(), bytes());
    stream.finish();
  }
  std::vector<T> values(GpuStream& stream) const {
    std::vector<T> host(numel_);
    stream.read(host.data(), data_, bytes());
    stream.finish();
    return host;
  }

 private:
  std::size_t numel_;
  DType dtype_;
  Device device_;
  void* data_ = nullptr;
};

inline ProcessGroupOptions on_gpu(int rank, std::chrono::milliseconds timeout = kTestTimeout) {
  return {.backend = "nccl", .timeout = timeout, .device = rank};
}

/// Throws what the lowest failing rank threw from fn(group).
template <class Fn>
void run_gpu_group(int n, Fn fn) {
  const auto store = n == 1 ? nullptr : make_hash_store();
  run_ranks(n, [&](int rank) {
    ProcessGroup group(store, rank, n, on_gpu(rank));
    fn(group);
  });
}

}  // namespace ddprun::test
