// SPDX-License-Identifier: MIT
// Two ranks as threads that compute on one stream and reduce on another. What is asked for leaves
// out one wait; under ThreadSanitizer with the doubles that is a data race, and the complete
// program is none. `stream_race none|before|after|graph`
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "doubles/fake_cudart.h"
#include "doubles/fake_nccl.h"

namespace {

constexpr int kRanks = 2, kSteps = 20;
constexpr std::size_t kCount = 1000;
constexpr int kCaptureThreadLocal = 1;

void ok(int error) {
  if (error == 0) return;
  std::fprintf(stderr, "stream_race: error %d\n", error);
  std::exit(1);
}

struct Streams {
  CudaStream compute = nullptr, comm = nullptr;
  CudaEvent ready = nullptr, done = nullptr;

  Streams() {
    ok(cudaStreamCreateWithFlags(&compute, ddprun::kCudaStreamNonBlocking));
    ok(cudaStreamCreateWithFlags(&comm, ddprun::kCudaStreamNonBlocking));
    ok(cudaEventCreateWithFlags(&ready, ddprun::kCudaEventDisableTiming));
    ok(cudaEventCreateWithFlags(&done, ddprun::kCudaEventDisableTiming));
  }
};

/// Gradients are written, reduced and used; `forgotten`: the wait that is left out.
void step(const Streams& streams, NcclComm comm, void* gradients, void* weights,
          const std::string& forgotten) {
  const std::size_t bytes = kCount * sizeof(float);
  ok(cudaMemsetAsync(gradients, 1, bytes, streams.compute));
  ok(cudaEventRecord(streams.ready, streams.compute));
  if (forgotten != "before") ok(cudaStreamWaitEvent(streams.comm, streams.ready, 0));
  ok(ncclAllReduce(gradients, gradients, kCount, ddprun::kNcclFloat32, ddprun::kNcclSum, comm,
                   streams.comm));
  ok(cudaEventRecord(streams.done, streams.comm));
  if (forgotten != "after") ok(cudaStreamWaitEvent(streams.compute, streams.done, 0));
  ok(cudaMemcpyAsync(weights, gradients, bytes, ddprun::kCudaMemcpyDefault, streams.compute));
}

/// The same captured; the wait before the use is after it.
void step_as_graph(const Streams& streams, NcclComm comm, void* gradients, void* weights) {
  const std::size_t bytes = kCount * sizeof(float);
  CudaGraph graph = nullptr;
  CudaGraphExec exec = nullptr;
  ok(cudaStreamBeginCapture(streams.compute, kCaptureThreadLocal));
  ok(cudaMemsetAsync(gradients, 1, bytes, streams.compute));
  ok(cudaEventRecord(streams.ready, streams.compute));
  ok(cudaStreamWaitEvent(streams.comm, streams.ready, 0));
  ok(ncclAllReduce(gradients, gradients, kCount, ddprun::kNcclFloat32, ddprun::kNcclSum, comm,
                   streams.comm));
  ok(cudaEventRecord(streams.done, streams.comm));
  ok(cudaMemcpyAsync(weights, gradients, bytes, ddprun::kCudaMemcpyDefault, streams.compute));
  ok(cudaStreamWaitEvent(streams.compute, streams.done, 0));
  ok(cudaStreamEndCapture(streams.compute, &graph));
  ok(cudaGraphInstantiate(&exec, graph, 0));
  ok(cudaGraphLaunch(exec, streams.compute));
}

void run_rank(int rank, const NcclUniqueId& id, const std::string& forgotten) {
  ok(cudaSetDevice(rank));
  NcclComm comm = nullptr;
  ok(ncclCommInitRank(&comm, kRanks, id, rank));
  const Streams streams;
  void *gradients = nullptr, *weights = nullptr;
  ok(cudaMalloc(&gradients, kCount * sizeof(float)));
  ok(cudaMalloc(&weights, kCount * sizeof(float)));
  for (int i = 0; i < kSteps; ++i) {
    if (forgotten == "graph")
      step_as_graph(streams, comm, gradients, weights);
    else
      step(streams, comm, gradients, weights, forgotten);
  }
  ok(cudaStreamSynchronize(streams.compute));
  ok(cudaStreamSynchronize(streams.comm));
  ok(ncclCommDestroy(comm));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string forgotten = argc > 1 ? argv[1] : "none";
  NcclUniqueId id;
  ok(ncclGetUniqueId(&id));
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.emplace_back([&, rank] { run_rank(rank, id, forgotten); });
  return 0;
}
