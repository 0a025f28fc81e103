// SPDX-License-Identifier: MIT
// A rank of the fake NCCL as a process: `nccl_rank ID SIZE RANK`, ID in hexadecimal. Reduces five
// times and prints the last sum, the asynchronous error that came instead, or that nothing came.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "doubles/fake_cudart.h"
#include "doubles/fake_nccl.h"

namespace {

NcclUniqueId parse(const std::string& hex) {
  NcclUniqueId id;
  for (std::size_t i = 0; i < sizeof id.internal; ++i)
    id.internal[i] = static_cast<char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  return id;
}

/// Whether the stream ends its work, before an error comes or a second has passed.
bool ends(CudaStream stream, NcclComm comm) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (cudaStreamQuery(stream) == ddprun::kCudaErrorNotReady) {
    NcclResult error = 0;
    ncclCommGetAsyncError(comm, &error);
    if (error != 0) return std::printf("asynchronous error %d\n", error), false;
    if (std::chrono::steady_clock::now() > limit) return std::puts("no answer"), false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace

int main(int, char** argv) {
  const int size = std::atoi(argv[2]), rank = std::atoi(argv[3]);
  NcclComm comm = nullptr;
  CudaStream stream = nullptr;
  void* data = nullptr;
  if (cudaSetDevice(rank) != 0 || cudaStreamCreate(&stream) != 0) return 1;
  if (cudaMalloc(&data, sizeof(float)) != 0) return 1;
  if (ncclCommInitRank(&comm, size, parse(argv[1]), rank) != 0) return 2;
  for (int step = 0; step < 5; ++step) {
    const float mine = static_cast<float>(rank + 1);
    cudaMemcpyAsync(data, &mine, sizeof mine, ddprun::kCudaMemcpyDefault, stream);
    ncclAllReduce(data, data, 1, ddprun::kNcclFloat32, ddprun::kNcclSum, comm, stream);
    if (!ends(stream, comm)) return ncclCommAbort(comm);
  }
  float sum = 0;
  cudaMemcpy(&sum, data, sizeof sum, ddprun::kCudaMemcpyDefault);
  std::printf("sum %d\n", static_cast<int>(sum));
  return ncclCommDestroy(comm);
}
