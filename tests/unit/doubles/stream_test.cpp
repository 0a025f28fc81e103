// SPDX-License-Identifier: MIT
// The fake CUDA runtime: streams and events order what CUDA says they order.
#include <doctest/doctest.h>

#include "unit/doubles/device.h"

using namespace ddprun;
using namespace ddprun::test;

TEST_SUITE("doubles") {
  TEST_CASE("fake stream: does its work in order and says when it is done") {
    const CudaStream stream = make_stream();
    int* const value = device_copy(std::vector<int>{0});
    const std::vector<int> first{1}, second{2};
    {
      Gate gate(stream);
      ok(cudaMemcpyAsync(value, first.data(), sizeof(int), kDefault, stream));
      ok(cudaMemcpyAsync(value, second.data(), sizeof(int), kDefault, stream));
      CHECK(cudaStreamQuery(stream) == kCudaErrorNotReady);
    }
    CHECK(host_copy(value, 1, stream)[0] == 2);
    CHECK(cudaStreamQuery(stream) == kCudaSuccess);
  }

  TEST_CASE("fake stream: goes on while another one stands still") {
    const CudaStream held = make_stream(), free = make_stream();
    Gate gate(held);
    CHECK(cudaStreamSynchronize(free) == kCudaSuccess);
  }

  TEST_CASE("fake stream: waits for an event as it was recorded, not as it is recorded later") {
    const CudaStream first = make_stream(), second = make_stream(), waiting = make_stream();
    const CudaEvent event = make_event();
    ok(cudaEventRecord(event, first));
    ok(cudaStreamWaitEvent(waiting, event, 0));
    Gate gate(second);
    ok(cudaEventRecord(event, second));
    CHECK(cudaEventQuery(event) == kCudaErrorNotReady);
    CHECK(cudaStreamSynchronize(waiting) == kCudaSuccess);
  }

  TEST_CASE("fake stream: an earlier record is waited for although a later one is reached") {
    const CudaStream first = make_stream(), second = make_stream(), waiting = make_stream();
    const CudaEvent event = make_event();
    Gate gate(first);
    ok(cudaEventRecord(event, first));
    ok(cudaStreamWaitEvent(waiting, event, 0));
    ok(cudaEventRecord(event, second));
    CHECK(cudaEventSynchronize(event) == kCudaSuccess);
    CHECK(cudaStreamQuery(waiting) == kCudaErrorNotReady);
  }

  TEST_CASE("fake event: is done when it was never recorded") {
    const CudaEvent event = make_event();
    CHECK(cudaEventQuery(event) == kCudaSuccess);
    CHECK(cudaStreamWaitEvent(make_stream(), event, 0) == kCudaSuccess);
  }

  TEST_CASE("fake event: may be destroyed while others wait for it") {
    const CudaStream recording = make_stream(), waiting = make_stream();
    const CudaEvent event = make_event();
    {
      Gate gate(recording);
      ok(cudaEventRecord(event, recording));
      ok(cudaStreamWaitEvent(waiting, event, 0));
      CHECK(cudaEventDestroy(event) == kCudaSuccess);
      CHECK(cudaStreamQuery(waiting) == kCudaErrorNotReady);
    }
    CHECK(cudaStreamSynchronize(waiting) == kCudaSuccess);
    CHECK(cudaEventQuery(event) == 400);
  }

  TEST_CASE("fake event: measures time between two records unless that is disabled") {
    const CudaStream stream = make_stream();
    const CudaEvent start = make_event(0), end = make_event(0), untimed = make_event();
    ok(cudaEventRecord(start, stream));
    ok(cudaEventRecord(end, stream));
    ok(cudaEventRecord(untimed, stream));
    ok(cudaStreamSynchronize(stream));
    float milliseconds = -1;
    CHECK(cudaEventElapsedTime(&milliseconds, start, end) == kCudaSuccess);
    CHECK(milliseconds >= 0);
    CHECK(cudaEventElapsedTime(&milliseconds, start, untimed) == 400);
  }

  TEST_CASE("fake default stream: waits for blocking streams and they for it, others do not") {
    const CudaStream blocking = make_stream(0), later = make_stream(0), apart = make_stream();
    int* const value = device_array<int>(1);
    {
      Gate gate(blocking);
      ok(cudaMemsetAsync(value, 0, sizeof(int), nullptr));
      CHECK(cudaStreamQuery(nullptr) == kCudaErrorNotReady);
      ok(cudaMemsetAsync(value, 0, sizeof(int), later));
      CHECK(cudaStreamQuery(later) == kCudaErrorNotReady);
      CHECK(cudaStreamSynchronize(apart) == kCudaSuccess);
    }
    CHECK(cudaStreamSynchronize(later) == kCudaSuccess);
    CHECK(cudaStreamQuery(nullptr) == kCudaSuccess);
  }

  TEST_CASE("fake stream: belongs to a device, as events and launches must") {
    const CudaEvent event = make_event();
    ok(cudaSetDevice(1));
    const CudaStream other = make_stream();
    ok(cudaSetDevice(0));
    CHECK(cudaEventRecord(event, other) == 400);
    CHECK(cudaStreamWaitEvent(other, event, 0) == kCudaSuccess);
    int* const value = device_array<int>(1);
    CHECK(cudaMemsetAsync(value, 0, sizeof(int), other) == 400);
  }

  TEST_CASE("fake stream: a host function may not call CUDA") {
    const CudaStream stream = make_stream();
    std::atomic<CudaError> seen{0};
    ok(cudaLaunchHostFunc(
        stream,
        [](void* out) { static_cast<std::atomic<CudaError>*>(out)->store(cudaSetDevice(0)); },
        &seen));
    ok(cudaStreamSynchronize(stream));
    CHECK(seen == 800);
  }

  TEST_CASE("fake stream: finishes its work when it is destroyed, and is no stream afterwards") {
    const CudaStream stream = make_stream();
    int* const value = device_copy(std::vector<int>{0});
    {
      Gate gate(stream);
      ok(cudaMemsetAsync(value, 1, sizeof(int), stream));
      CHECK(cudaStreamDestroy(stream) == kCudaSuccess);
      CHECK(cudaStreamQuery(stream) == 400);
    }
    ok(cudaDeviceSynchronize());
    CHECK(host_copy(value, 1, make_stream())[0] == 0x01010101);
  }
}
