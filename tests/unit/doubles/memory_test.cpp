// SPDX-License-Identifier: MIT
// The fake CUDA runtime: memory, devices, faults.
#include <cmath>
#include <csignal>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/scoped_env.h"
#include "unit/doubles/device.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

constexpr int kHostToDevice = 1, kDeviceToHost = 2;

/// What a child process that runs fn returns; the signal that killed it as a negative number.
template <class Fn>
int in_child(Fn fn) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(fn());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

int device_count_with(const char* visible) {
  return in_child([&] {
    ::setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    int count = 99;
    const CudaError error = cudaGetDeviceCount(&count);
    return error == kCudaSuccess ? count : error;
  });
}

}  // namespace

TEST_SUITE("doubles") {
  TEST_CASE("fake memory: is not a number until it is written") {
    for (const float value : host_copy(device_array<float>(100), 100, make_stream()))
      CHECK(std::isnan(value));
  }

  TEST_CASE("fake memory: a copy that leaves an allocation or has the wrong kind is refused") {
    const CudaStream stream = make_stream();
    int* const device = device_array<int>(4);
    std::vector<int> host(8);
    CHECK(cudaMemcpyAsync(device, host.data(), 20, kHostToDevice, stream) == 1);
    CHECK(cudaMemcpyAsync(device + 3, host.data(), 8, kDefault, stream) == 1);
    CHECK(cudaMemcpyAsync(device, host.data(), 16, kDeviceToHost, stream) == 1);
    CHECK(cudaMemcpyAsync(device, host.data(), 16, kHostToDevice, stream) == kCudaSuccess);
    CHECK(cudaMemsetAsync(device, 0, 17, stream) == 1);
    CHECK(cudaGetLastError() == 1);
    CHECK(cudaGetLastError() == kCudaSuccess);
    ok(cudaStreamSynchronize(stream));
  }

  TEST_CASE("fake memory: freeing waits for the device, and a second time is refused") {
    const CudaStream stream = make_stream();
    int* const device = device_copy(std::vector<int>{7});
    std::vector<int> host(1);
    ok(cudaMemcpyAsync(host.data(), device, sizeof(int), kDefault, stream));
    CHECK(cudaFree(device) == kCudaSuccess);
    CHECK(host[0] == 7);
    CHECK(cudaFree(device) == 1);
    CHECK(cudaMemsetAsync(device, 0, 1, stream) == 1);
  }

  TEST_CASE("fake memory: knows what a pointer is and whose") {
    ok(cudaSetDevice(2));
    int* const device = device_array<int>(1);
    void* locked = nullptr;
    ok(cudaMallocHost(&locked, 8));
    int plain = 0;
    CudaPointerAttributes attributes = {};
    ok(cudaPointerGetAttributes(&attributes, device));
    CHECK(attributes.type == 2);
    CHECK(attributes.device == 2);
    ok(cudaPointerGetAttributes(&attributes, locked));
    CHECK(attributes.type == 1);
    ok(cudaPointerGetAttributes(&attributes, &plain));
    CHECK(attributes.type == 0);
    CHECK(cudaFreeHost(locked) == kCudaSuccess);
    ok(cudaSetDevice(0));
  }

  TEST_CASE("fake memory: ends where FAKE_CUDA_MEM_MB says, and can be used again") {
    CHECK(in_child([] {
            ::setenv("FAKE_CUDA_MEM_MB", "64", 1);
            constexpr std::size_t kMost = std::size_t{40} << 20;
            void *most = nullptr, *more = nullptr;
            if (cudaMalloc(&most, kMost) != kCudaSuccess) return 1;
            if (cudaMalloc(&more, kMost) != kCudaErrorMemoryAllocation) return 2;
            ok(cudaFree(most));
            return cudaMalloc(&more, kMost) == kCudaSuccess ? 0 : 3;
          }) == 0);
  }

  TEST_CASE("fake memory: the host dies when it touches it") {
    CHECK(in_child([] {
            std::signal(SIGSEGV, SIG_DFL);  // not the sanitizers' handler
            volatile const int* const device = device_array<int>(1);
            return *device;
          }) == -SIGSEGV);
  }

  TEST_CASE("fake devices: CUDA_VISIBLE_DEVICES chooses, renumbers and hides") {
    CHECK(device_count_with("2,3") == 2);
    CHECK(device_count_with("3,9,1") == 1);
    CHECK(device_count_with("1,-1,2") == 1);
    CHECK(device_count_with("GPU-00000000-0000-0000-0000-000000000005") == 1);
    for (const char* none : {"", "-1", "9", "auto", "GPU-1", "GPU-0", "MIG-0", "0,0"})
      CHECK(device_count_with(none) == kCudaErrorNoDevice);
    CHECK(in_child([] {
            ::setenv("CUDA_VISIBLE_DEVICES", "3,1", 1);
            char first[16] = "", second[16] = "";
            ok(cudaDeviceGetPCIBusId(first, sizeof first, 0));
            ok(cudaDeviceGetPCIBusId(second, sizeof second, 1));
            const bool right =
                std::string(first) == "0000:04:00.0" && std::string(second) == "0000:02:00.0";
            return right ? cudaSetDevice(2) : 1;
          }) == 101);
  }

  TEST_CASE("fake devices: without a driver every call says so") {
    CHECK(in_child([] {
            ::setenv("FAKE_CUDA_DRIVER", "0", 1);
            int version = 1, count = -7;
            cudaDriverGetVersion(&version);
            const bool same = cudaGetDeviceCount(&count) == 35 && cudaGetLastError() == 35 &&
                              cudaGetLastError() == 35 && cudaSetDevice(0) == 35;
            return same && version == 0 && count == -7 ? 0 : 1;
          }) == 0);
  }

  TEST_CASE("fake devices: a process forked by one that used CUDA cannot") {
    ok(cudaSetDevice(0));
    CHECK(in_child([] { return cudaSetDevice(0); }) == 3);
  }

  TEST_CASE("fake faults: the call of the plan fails, a sticky error stays") {
    const std::map<std::string, std::optional<std::string>> variables = {
        {"FAKE_CUDA_FAULTS", "call=cudaEventRecord,nth=2,err=999;call=cudaFree,err=719,sticky=1"}};
    const ScopedEnv plan(variables);
    const CudaStream stream = make_stream();
    const CudaEvent event = make_event();
    CHECK(cudaEventRecord(event, stream) == kCudaSuccess);
    CHECK(cudaEventRecord(event, stream) == 999);
    CHECK(cudaEventRecord(event, stream) == kCudaSuccess);
    ok(cudaSetDevice(5));
    CHECK(cudaFree(nullptr) == 719);
    CHECK(cudaStreamQuery(stream) == 719);
    CHECK(cudaGetLastError() == 719);
    CHECK(cudaGetLastError() == 719);
    CHECK(std::string(cudaGetErrorName(719)) == "cudaErrorLaunchFailure");
  }
}
