// SPDX-License-Identifier: MIT
// Which GPU a group works on: its own, whatever thread calls and whatever its device is, and none
// else. Ranks are processes over the doubles of CUDA and NCCL, which count contexts.
#include <ddprun/cuda.h>

#include <cstdlib>
#include <thread>

#include <dlfcn.h>
#include <doctest/doctest.h>

#include "support/gpu_ranks.h"
#include "support/rank_processes.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

constexpr std::chrono::seconds kPatience(20);
constexpr std::size_t kBytes = 4000;

RankProcesses gpu_ranks(int n, const RankProcesses::Fn& fn) {
  return {n, kPatience, fn, [](int) { ::setenv("FAKE_CUDA_STRICT_NULL", "0", 1); }, "nccl"};
}

template <class Function>
auto function_of_cudart(const char* name) {
  void* const cudart = ::dlopen(cuda_api().path.c_str(), RTLD_NOW);
  return reinterpret_cast<Function>(::dlsym(cudart, name));
}

/// The GPUs on which this process has a context.
std::string contexts() {
  const auto has_context = function_of_cudart<int (*)(int)>("double_cuda_has_context");
  std::string devices;
  for (int device = 0; device < cuda::device_count(); ++device)
    if (has_context(device)) devices += std::to_string(device) + " ";
  return devices;
}

/// On a thread that has chosen no device. What it throws is thrown here.
void on_fresh_thread(const std::function<void()>& fn) {
  std::exception_ptr error;
  std::thread([&] {
    try {
      fn();
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
}

/// What a UsageError says; empty when there is none.
std::string usage_error_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const UsageError& error) {
    return error.what();
  }
  return {};
}

TensorView view_of(const std::shared_ptr<std::byte[]>& memory, const ProcessGroup& group) {
  return {memory.get(), kBytes / sizeof(float), DType::f32, group.device()};
}

/// All that a program may do with a group, on threads that have chosen no device.
void use_from_fresh_threads(ProcessGroup& group) {
  const GpuStream stream;
  std::shared_ptr<std::byte[]> memory, own;
  Work first, second;
  on_fresh_thread([&] { memory = group.allocate(kBytes, group.device()); });
  on_fresh_thread([&] { own = cuda::allocate(kBytes, group.device().index); });
  on_fresh_thread([&] {
    first = group.all_reduce(view_of(memory, group), ReduceOp::sum, stream.get(), true);
    second = group.broadcast(view_of(own, group), 0, stream.get(), true);
  });
  on_fresh_thread([&] { group.order_after(stream.get()); });
  on_fresh_thread([&] { static_cast<void>(first.done()); });
  on_fresh_thread([&] { first.wait_on(stream.get()); });
  on_fresh_thread([&] { first.wait(); });
  on_fresh_thread([&] { second.wait(); });
  on_fresh_thread([&] { group.barrier(); });
  on_fresh_thread([&] { memory.reset(); });
  on_fresh_thread([&] { own.reset(); });
  on_fresh_thread([&] { first = second = Work(); });
}

}  // namespace

TEST_SUITE("contract") {
  TEST_CASE("NcclBackend: a rank has a context on its own GPU and on no other") {
    auto ranks = gpu_ranks(3, [](ProcessGroup& group, const Voice& voice) {
      use_from_fresh_threads(group);
      on_fresh_thread(
          [own = std::make_shared<ProcessGroup>(std::move(group))]() mutable { own.reset(); });
      voice.say(contexts());
    });
    for (int r = 0; r < 3; ++r)
      CHECK(ranks.hear(r, Deadline::after(kPatience)) == std::to_string(r) + " ");
  }

  TEST_CASE("NcclBackend: a thread gets back the device that it had") {
    auto ranks = gpu_ranks(2, [](ProcessGroup& group, const Voice& voice) {
      on_fresh_thread([&] {
        cuda_api().cudaSetDevice(5);
        group.allocate(kBytes, group.device());
        int device = -1;
        cuda_api().cudaGetDevice(&device);
        voice.say(std::to_string(device));
      });
    });
    for (int r = 0; r < 2; ++r) CHECK(ranks.hear(r, Deadline::after(kPatience)) == "5");
  }

  TEST_CASE("NcclBackend: a stream of another GPU is refused in words, and the group goes on") {
    auto ranks = gpu_ranks(2, [](ProcessGroup& group, const Voice& voice) {
      const auto memory = group.allocate(kBytes, group.device());
      const auto reduce = [&](const GpuStream& stream) {
        group.all_reduce(view_of(memory, group), ReduceOp::sum, stream.get());
      };
      on_fresh_thread([&] {
        cuda_api().cudaSetDevice(5);
        const GpuStream foreign;
        voice.say(usage_error_of([&] { reduce(foreign); }));
        voice.say(usage_error_of([&] { group.order_after(foreign.get()); }));
        voice.say("error " + std::to_string(cuda_api().cudaGetLastError()));
      });
      const GpuStream stream;
      reduce(stream);
      stream.finish();
      voice.say("done");
    });
    for (int r = 0; r < 2; ++r)
      for (const std::string operation : {"all_reduce", "order_after"}) {
        CHECK(ranks.hear(r, Deadline::after(kPatience)) ==
              "[nccl] " + operation + ": the stream is not of cuda:" + std::to_string(r) +
                  "; create it after init_process_group has selected the device");
      }
    for (int r = 0; r < 2; ++r) {
      CHECK(ranks.hear(r, Deadline::after(kPatience)) == "error 0");
      CHECK(ranks.hear(r, Deadline::after(kPatience)) == "done");
    }
  }

  TEST_CASE("NcclBackend: the default stream is that of the group's GPU, on any thread") {
    auto ranks = gpu_ranks(2, [](ProcessGroup& group, const Voice& voice) {
      const auto memory = group.allocate(kBytes, group.device());
      on_fresh_thread([&] { group.all_reduce(view_of(memory, group)); });
      voice.say(contexts());
    });
    for (int r = 0; r < 2; ++r)
      CHECK(ranks.hear(r, Deadline::after(kPatience)) == std::to_string(r) + " ");
  }

  TEST_CASE("NcclBackend: a capture is neither joined nor spoilt by a wait") {
    auto ranks = gpu_ranks(2, [](ProcessGroup& group, const Voice& voice) {
      const auto begin =
          function_of_cudart<CudaError (*)(CudaStream, int)>("cudaStreamBeginCapture");
      const auto end =
          function_of_cudart<CudaError (*)(CudaStream, void**)>("cudaStreamEndCapture");
      const auto memory = group.allocate(kBytes, group.device());
      const GpuStream captured, other;
      const Work work = group.all_reduce(view_of(memory, group), ReduceOp::sum, other.get(), true);
      begin(captured.get().handle, kCudaCaptureModeThreadLocal);
      work.wait_on(other.get());
      voice.say(usage_error_of([&] { work.wait_on(captured.get()); }));
      void* graph = nullptr;
      voice.say("capture " + std::to_string(end(captured.get().handle, &graph)));
      work.wait();
    });
    for (int r = 0; r < 2; ++r) {
      CHECK(ranks.hear(r, Deadline::after(kPatience))
                .starts_with("[nccl] wait_on: its stream is being captured"));
      CHECK(ranks.hear(r, Deadline::after(kPatience)) == "capture 0");
    }
  }
}
