// SPDX-License-Identifier: MIT
// The fake CUDA runtime: stream capture and graphs.
#include <doctest/doctest.h>

#include "unit/doubles/device.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

constexpr int kGlobal = 0, kThreadLocal = 1, kRelaxed = 2;

int status_of(CudaStream stream) {
  int status = -1;
  ok(cudaStreamIsCapturing(stream, &status));
  return status;
}

CudaError end_capture(CudaStream stream) {
  CudaGraph graph = nullptr;
  return cudaStreamEndCapture(stream, &graph);
}

CudaError in_other_thread(CudaError (*fn)(CudaEvent), CudaEvent event) {
  CudaError error = -1;
  std::thread([&] { error = fn(event); }).join();
  return error;
}

}  // namespace

TEST_SUITE("doubles") {
  TEST_CASE("fake capture: nothing runs until the graph is launched, then each time") {
    const CudaStream main = make_stream(), side = make_stream();
    const CudaEvent fork = make_event(), join = make_event();
    int* const values = device_copy(std::vector<int>{1, 0, 0});
    ok(cudaStreamBeginCapture(main, kGlobal));
    CHECK(status_of(main) == 1);
    ok(cudaMemcpyAsync(values + 1, values, sizeof(int), kDefault, main));
    ok(cudaEventRecord(fork, main));
    ok(cudaStreamWaitEvent(side, fork, 0));
    CHECK(status_of(side) == 1);
    ok(cudaMemcpyAsync(values + 2, values + 1, sizeof(int), kDefault, side));
    ok(cudaEventRecord(join, side));
    ok(cudaStreamWaitEvent(main, join, 0));
    CudaGraph graph = nullptr;
    REQUIRE(cudaStreamEndCapture(main, &graph) == kCudaSuccess);
    CHECK(status_of(side) == 0);
    CHECK(host_copy(values, 3, main) == std::vector<int>{1, 0, 0});
    CudaGraphExec exec = nullptr;
    ok(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph) == kCudaSuccess);
    for (const int value : {4, 5}) {
      ok(cudaMemcpyAsync(values, &value, sizeof(int), kDefault, main));
      ok(cudaGraphLaunch(exec, main));
      CHECK(host_copy(values, 3, main) == std::vector<int>{value, value, value});
    }
    CHECK(cudaGraphExecDestroy(exec) == kCudaSuccess);
  }

  TEST_CASE("fake capture: work of another stream must be joined") {
    const CudaStream main = make_stream(), side = make_stream();
    const CudaEvent fork = make_event();
    int* const value = device_array<int>(1);
    ok(cudaStreamBeginCapture(main, kGlobal));
    ok(cudaEventRecord(fork, main));
    ok(cudaStreamWaitEvent(side, fork, 0));
    ok(cudaMemsetAsync(value, 0, sizeof(int), side));
    CHECK(end_capture(side) == 903);
    CHECK(end_capture(main) == 904);
  }

  TEST_CASE("fake capture: an event outside of it cannot be waited for, one inside not asked") {
    const CudaStream main = make_stream();
    const CudaEvent outside = make_event(), inside = make_event();
    ok(cudaEventRecord(outside, main));
    ok(cudaStreamSynchronize(main));
    ok(cudaStreamBeginCapture(main, kRelaxed));
    ok(cudaEventRecord(inside, main));
    CHECK(cudaStreamWaitEvent(main, outside, 0) == 905);
    CHECK(cudaEventQuery(inside) == 907);
    CHECK(cudaEventQuery(outside) == kCudaSuccess);
    CHECK(end_capture(main) == kCudaSuccess);
  }

  TEST_CASE("fake capture: waiting for the stream loses it") {
    const CudaStream main = make_stream();
    ok(cudaStreamBeginCapture(main, kThreadLocal));
    CHECK(cudaStreamSynchronize(main) == 900);
    CHECK(status_of(main) == 2);
    CHECK(end_capture(main) == 901);
  }

  TEST_CASE("fake capture: in global mode a query by another thread loses it") {
    const CudaStream main = make_stream();
    const CudaEvent event = make_event();
    ok(cudaStreamBeginCapture(main, kGlobal));
    CHECK(in_other_thread(cudaEventQuery, event) == 900);
    CHECK(end_capture(main) == 901);
  }

  TEST_CASE(
      "fake capture: a query is harmless in thread-local mode, or by a thread that is in it") {
    const CudaStream main = make_stream();
    const CudaEvent event = make_event();
    ok(cudaStreamBeginCapture(main, kThreadLocal));
    CHECK(in_other_thread(cudaEventQuery, event) == kCudaSuccess);
    CHECK(end_capture(main) == kCudaSuccess);
    ok(cudaStreamBeginCapture(main, kGlobal));
    CHECK(in_other_thread(
              [](CudaEvent asked) {
                int mode = kThreadLocal;
                ok(cudaThreadExchangeStreamCaptureMode(&mode));
                return mode == kGlobal ? cudaEventQuery(asked) : -1;
              },
              event) == kCudaSuccess);
    CHECK(end_capture(main) == kCudaSuccess);
  }

  TEST_CASE(
      "fake capture: allocating is refused, the default stream too, and another thread's end") {
    const CudaStream blocking = make_stream(0);
    void* memory = nullptr;
    ok(cudaStreamBeginCapture(blocking, kThreadLocal));
    CHECK(cudaMalloc(&memory, 4) == 900);
    CHECK(end_capture(blocking) == 901);
    ok(cudaStreamBeginCapture(blocking, kRelaxed));
    CHECK(cudaStreamQuery(nullptr) == 906);
    CHECK(end_capture(blocking) == 901);
    ok(cudaStreamBeginCapture(blocking, kGlobal));
    CHECK(in_other_thread(end_capture, blocking) == 908);
    CHECK(end_capture(blocking) == kCudaSuccess);
    CHECK(cudaStreamBeginCapture(nullptr, kGlobal) == 900);
  }
}
