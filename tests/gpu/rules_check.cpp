// SPDX-License-Identifier: MIT
// What CUDA answers where the test double has a rule: one line each, so that a double that is wrong
// is seen. Over the double it must pass too.
#include <ddprun/cuda.h>

#include <atomic>
#include <cstring>
#include <vector>

#include "gpu/check.h"
#include "support/device_array.h"

using namespace ddprun;
using namespace ddprun::gpu_check;
using test::OwnStream;

namespace {

constexpr int kInvalidValue = 1, kIllegalState = 401, kNotPermitted = 800,
              kCaptureUnsupported = 900, kCaptureInvalidated = 901, kCaptureUnjoined = 904,
              kCapturedEvent = 907;
constexpr int kGlobal = 0, kThreadLocal = 1, kRelaxed = 2;  // capture modes
constexpr int kHostToDevice = 1;

using Graph = void*;
using GraphExec = void*;

/// Calls that the product does not make.
struct More {
  CudaError (*begin)(CudaStream,
                     int) = cuda_function<CudaError (*)(CudaStream, int)>("cudaStreamBeginCapture");
  CudaError (*end)(CudaStream, Graph*) =
      cuda_function<CudaError (*)(CudaStream, Graph*)>("cudaStreamEndCapture");
  CudaError (*instantiate)(GraphExec*, Graph, unsigned long long) =
      cuda_function<CudaError (*)(GraphExec*, Graph, unsigned long long)>("cudaGraphInstantiate");
  CudaError (*launch)(GraphExec, CudaStream) =
      cuda_function<CudaError (*)(GraphExec, CudaStream)>("cudaGraphLaunch");
  CudaError (*destroy)(Graph) = cuda_function<CudaError (*)(Graph)>("cudaGraphDestroy");
  CudaError (*destroy_exec)(GraphExec) =
      cuda_function<CudaError (*)(GraphExec)>("cudaGraphExecDestroy");
  CudaError (*host_function)(CudaStream, void (*)(void*), void*) =
      cuda_function<CudaError (*)(CudaStream, void (*)(void*), void*)>("cudaLaunchHostFunc");
};

class Event {
 public:
  Event() {
    require_cuda(api_, api_.cudaEventCreateWithFlags(&event_, kCudaEventDisableTiming), "event");
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { api_.cudaEventDestroy(event_); }
  operator CudaEvent() const { return event_; }

 private:
  const CudaApi& api_ = cuda_api();
  CudaEvent event_ = nullptr;
};

/// One line: the code that came, beside the one that the double gives.
void expect(Report& report, const char* what, CudaError seen, CudaError expected) {
  cuda_api().cudaGetLastError();
  report.check(seen == expected, fmt::format("{}: {} (expected {})", what, seen, expected));
}

void versions(Report& report) {
  const CudaApi& api = cuda_api();
  int runtime = 0;
  int driver = 0;
  int major = 0;
  int minor = 0;
  int processors = 0;
  require_cuda(api, api.cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  require_cuda(api, api.cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  api.cudaDeviceGetAttribute(&major, kCudaAttributeCapabilityMajor, 0);
  api.cudaDeviceGetAttribute(&minor, kCudaAttributeCapabilityMinor, 0);
  api.cudaDeviceGetAttribute(&processors, kCudaAttributeMultiProcessorCount, 0);
  report.note(fmt::format("{}: runtime {}, driver {}", api.path, runtime, driver));
  report.check(cuda::why_unavailable(0).empty(), "GPU 0 can be used " + cuda::why_unavailable(0));
  const int devices = cuda::device_count();
  report.check(devices > 0, fmt::format("{} GPUs", devices));
  const auto refused = cuda::why_unavailable(devices);
  report.check(!refused.empty(), "one more is refused: " + refused);
  expect(report, "cudaSetDevice beyond the last", api.cudaSetDevice(devices), 101);
  report.figure(fmt::format("{} GPU, capability {}.{}, {} multiprocessors, runtime {}, driver {}",
                            devices, major, minor, processors, runtime, driver));
}

void events(Report& report) {
  const CudaApi& api = cuda_api();
  const More more;
  const OwnStream stream;
  const Event never;
  expect(report, "cudaEventQuery of an event never recorded", api.cudaEventQuery(never), 0);
  expect(report, "cudaStreamWaitEvent on one", api.cudaStreamWaitEvent(stream.handle(), never, 0),
         0);
  const auto memory = cuda::allocate(64);
  std::vector<char> host(64);
  expect(report, "cudaMemcpyAsync from device memory said to be the host's",
         api.cudaMemcpyAsync(memory.get(), memory.get() + 32, 8, kHostToDevice, stream.handle()),
         kInvalidValue);
  expect(report, "cudaMemcpyAsync from pageable memory",
         api.cudaMemcpyAsync(memory.get(), host.data(), 64, kCudaMemcpyDefault, stream.handle()),
         0);
  static std::atomic<int> answer{-1};
  require_cuda(
      api,
      more.host_function(
          stream.handle(), [](void* device) { answer = cuda_api().cudaFree(device); }, nullptr),
      "cudaLaunchHostFunc");
  stream.wait();
  // CUDA "may" refuse it; the double always does.
  report.note(fmt::format("cudaFree in a host function: {} ({} by the double)", answer.load(),
                          kNotPermitted));
}

void capture(Report& report) {
  const CudaApi& api = cuda_api();
  const More more;
  const OwnStream origin;
  const OwnStream other;
  const auto memory = cuda::allocate(64);
  Graph graph = nullptr;
  {
    const Event fork;
    more.begin(origin.handle(), kRelaxed);
    api.cudaEventRecord(fork, origin.handle());
    expect(report, "cudaEventQuery of an event recorded in a capture", api.cudaEventQuery(fork),
           kCapturedEvent);
    more.end(origin.handle(), &graph);
    api.cudaGetLastError();
  }
  {
    const Event fork;
    more.begin(origin.handle(), kThreadLocal);
    api.cudaEventRecord(fork, origin.handle());
    api.cudaStreamWaitEvent(other.handle(), fork, 0);
    api.cudaMemsetAsync(memory.get(), 0, 64, other.handle());
    expect(report, "cudaStreamEndCapture with a fork that was not joined",
           more.end(origin.handle(), &graph), kCaptureUnjoined);
  }
  more.begin(origin.handle(), kThreadLocal);
  expect(report, "cudaStreamQuery of a captured stream", api.cudaStreamQuery(origin.handle()),
         kCaptureUnsupported);
  expect(report, "cudaStreamEndCapture after it", more.end(origin.handle(), &graph),
         kCaptureInvalidated);
  expect(report, "cudaStreamEndCapture without a capture", more.end(origin.handle(), &graph),
         kIllegalState);
}

/// As a watchdog does it: an event that was recorded outside, asked for from a thread of its own.
CudaError ask_during_capture(Report& report, int mode, int own_mode, CudaError* end) {
  const CudaApi& api = cuda_api();
  const More more;
  const OwnStream captured;
  const OwnStream outside;
  const Event event;
  require_cuda(api, api.cudaEventRecord(event, outside.handle()), "cudaEventRecord");
  outside.wait();
  require_cuda(api, more.begin(captured.handle(), mode), "cudaStreamBeginCapture");
  CudaError seen = -1;
  std::thread([&] {
    int exchanged = own_mode;
    api.cudaThreadExchangeStreamCaptureMode(&exchanged);
    seen = api.cudaEventQuery(event);
  }).join();
  Graph graph = nullptr;
  *end = more.end(captured.handle(), &graph);
  api.cudaGetLastError();
  report.note(fmt::format("capture mode {}, asking thread's mode {}: query {}, end {}", mode,
                          own_mode, seen, *end));
  return seen;
}

void watchdog(Report& report) {
  CudaError end = 0;
  expect(report, "cudaEventQuery from a second thread, both in global mode",
         ask_during_capture(report, kGlobal, kGlobal, &end), kCaptureUnsupported);
  expect(report, "  the capture ends", end, kCaptureInvalidated);
  expect(report, "cudaEventQuery from a second thread in thread-local mode",
         ask_during_capture(report, kGlobal, kThreadLocal, &end), 0);
  expect(report, "  the capture ends", end, 0);
  expect(report, "cudaEventQuery from a second thread, capture in thread-local mode",
         ask_during_capture(report, kThreadLocal, kGlobal, &end), 0);
  expect(report, "  the capture ends", end, 0);
}

/// A step with the work of two streams, captured and replayed: the same bits as without a graph.
void graph(Report& report) {
  const CudaApi& api = cuda_api();
  const More more;
  const OwnStream compute;
  const OwnStream comm;
  constexpr std::size_t kNumel = 4097;
  constexpr int kSteps = 100;
  const Event ready;
  const Event done;
  const auto train = [&](bool as_graph) {
    const test::DeviceArray<float> value(compute, std::vector<float>(kNumel, 1.0f));
    const test::DeviceArray<float> gradient(compute, std::vector<float>(kNumel, 0.5f));
    const auto moments = cuda::allocate(2 * kNumel * sizeof(float));
    TensorView first = value.view();
    first.data = moments.get();
    TensorView second = first;
    second.data = moments.get() + first.bytes();
    cuda::GradientNorm norm;
    const TensorView view = gradient.view();
    const auto step = [&] {
      cuda::cast(view, view, 0.99, compute);
      api.cudaEventRecord(ready, compute.handle());
      api.cudaStreamWaitEvent(comm.handle(), ready, 0);
      norm.compute({&view, 1}, 1, 0.1, comm);
      api.cudaEventRecord(done, comm.handle());
      api.cudaStreamWaitEvent(compute.handle(), done, 0);
      cuda::adamw_step({value.view(), view, first, second, {}, norm.result()}, {}, 1, compute);
    };
    GraphExec exec = nullptr;
    Graph recorded = nullptr;
    if (as_graph) {
      require_cuda(api, more.begin(compute.handle(), kThreadLocal), "cudaStreamBeginCapture");
      step();
      require_cuda(api, more.end(compute.handle(), &recorded), "cudaStreamEndCapture");
      require_cuda(api, more.instantiate(&exec, recorded, 0), "cudaGraphInstantiate");
    }
    const auto start = Deadline::Clock::now();
    for (int i = 0; i < kSteps; ++i) {
      if (as_graph)
        require_cuda(api, more.launch(exec, compute.handle()), "cudaGraphLaunch");
      else
        step();
    }
    compute.wait();
    const std::chrono::duration<double, std::micro> each = Deadline::Clock::now() - start;
    report.note(
        fmt::format("{}: {:.1f} us a step", as_graph ? "graph" : "eager", each.count() / kSteps));
    if (as_graph) more.destroy_exec(exec), more.destroy(recorded);
    return std::pair(value.read(), each.count() / kSteps);
  };
  const auto [eager, eager_time] = train(false);
  const auto [replayed, graph_time] = train(true);
  report.check(std::memcmp(eager.data(), replayed.data(), kNumel * sizeof(float)) == 0,
               "a step replayed 100 times as a graph has the bits of the steps themselves");
  report.figure(fmt::format("step eager {:.0f} us, graph {:.0f} us", eager_time, graph_time));
}

}  // namespace

int main(int argc, char** argv) {
  return run_mode(argc, argv,
                  {{"versions", versions},
                   {"rules",
                    [](Report& report) {
                      events(report);
                      capture(report);
                      watchdog(report);
                    }},
                   {"graph", graph}});
}
