// SPDX-License-Identifier: MIT
// How fast the kernels are: bytes that each must move, over its time, as a share of what a copy
// within the device reaches.
#include <ddprun/cuda.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "gpu/check.h"
#include "support/device_array.h"

using namespace ddprun;
using namespace ddprun::gpu_check;

namespace {

constexpr int kRepeats = 20;

/// Milliseconds of work on a stream, by events.
class Stopwatch {
 public:
  Stopwatch() {
    for (CudaEvent* event : {&start_, &end_})
      require_cuda(api_, api_.cudaEventCreateWithFlags(event, 0), "cudaEventCreateWithFlags");
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() {
    for (CudaEvent event : {start_, end_}) api_.cudaEventDestroy(event);
  }

  float measure(const test::OwnStream& stream, const std::function<void()>& work) {
    require_cuda(api_, api_.cudaEventRecord(start_, stream.handle()), "cudaEventRecord");
    work();
    require_cuda(api_, api_.cudaEventRecord(end_, stream.handle()), "cudaEventRecord");
    stream.wait();
    float milliseconds = 0;
    require_cuda(api_, elapsed_(&milliseconds, start_, end_), "cudaEventElapsedTime");
    return milliseconds;
  }

  /// The middle one of several, after one that warms up.
  float median(const test::OwnStream& stream, const std::function<void()>& work) {
    measure(stream, work);
    std::vector<float> times;
    for (int i = 0; i < kRepeats; ++i) times.push_back(measure(stream, work));
    std::nth_element(times.begin(), times.begin() + kRepeats / 2, times.end());
    return times[kRepeats / 2];
  }

 private:
  const CudaApi& api_ = cuda_api();
  CudaError (*elapsed_)(float*, CudaEvent, CudaEvent) =
      cuda_function<CudaError (*)(float*, CudaEvent, CudaEvent)>("cudaEventElapsedTime");
  CudaEvent start_ = nullptr, end_ = nullptr;
};

struct Row {
  const char* name;
  int bytes_per_element;
  std::function<void()> work;
};

class Arena {
 public:
  explicit Arena(std::size_t numel) : numel_(numel) {}
  TensorView make(DType dtype) {
    memory_.push_back(cuda::allocate(numel_ * size_of(dtype)));
    return {memory_.back().get(), numel_, dtype, {DeviceType::cuda, 0}};
  }

 private:
  std::size_t numel_;
  std::vector<std::shared_ptr<std::byte[]>> memory_;
};

/// A flat range as tensors of uneven sizes.
std::vector<TensorView> parts_of(TensorView whole) {
  std::vector<TensorView> parts;
  std::size_t size = 1000;
  for (std::size_t at = 0; at < whole.numel; at += parts.back().numel) {
    size = size * 7 % 3000017 + 1;
    TensorView part = whole;
    part.data = static_cast<std::byte*>(whole.data) + at * size_of(whole.dtype);
    part.numel = std::min(size, whole.numel - at);
    parts.push_back(part);
  }
  return parts;
}

/// What all kernels work on, at once in device memory.
struct Workload {
  explicit Workload(std::size_t numel) : arena(numel) {}

  Arena arena;
  TensorView value = arena.make(DType::f32);
  TensorView gradient = arena.make(DType::f32);
  TensorView first = arena.make(DType::f32);
  TensorView second = arena.make(DType::f32);
  TensorView gradient16 = arena.make(DType::bf16);
  TensorView copy16 = arena.make(DType::bf16);
  cuda::Flattener flattener{parts_of(gradient)};
  cuda::GradientNorm norm;
  test::OwnStream stream;
};

std::vector<Row> steps(Workload& w) {
  const SgdOptions momentum{.lr = 0.1, .momentum = 0.9};
  return {
      {"sgd f32", 12,
       [&] {
         cuda::sgd_step({w.value, w.gradient}, {.lr = 0.1}, w.stream);
       }},
      {"sgd f32 momentum", 20,
       [&, momentum] {
         cuda::sgd_step({w.value, w.gradient, w.first}, momentum, w.stream);
       }},
      {"sgd bf16 momentum copy", 20,
       [&, momentum] {
         cuda::sgd_step({w.value, w.gradient16, w.first, w.copy16}, momentum, w.stream);
       }},
      {"adamw f32", 28,
       [&] {
         cuda::adamw_step({w.value, w.gradient, w.first, w.second}, {}, 1, w.stream);
       }},
      {"adamw f32 copy", 30,
       [&] {
         cuda::adamw_step({w.value, w.gradient, w.first, w.second, w.copy16}, {}, 1, w.stream);
       }},
      {"adamw bf16 copy", 28,
       [&] {
         cuda::adamw_step({w.value, w.gradient16, w.first, w.second, w.copy16}, {}, 1, w.stream);
       }},
  };
}

std::vector<Row> passes(Workload& w) {
  return {
      {"norm f32", 4,
       [&] {
         w.norm.compute({&w.gradient, 1}, 1, 1, w.stream);
       }},
      {"norm bf16", 2,
       [&] {
         w.norm.compute({&w.gradient16, 1}, 1, 1, w.stream);
       }},
      {"scale f32", 8, [&] { cuda::cast(w.value, w.value, 0.5, w.stream); }},
      {"scale bf16", 4, [&] { cuda::cast(w.copy16, w.copy16, 0.5, w.stream); }},
      {"cast f32 to bf16", 6, [&] { cuda::cast(w.copy16, w.value, 1, w.stream); }},
      {"cast bf16 to f32", 6, [&] { cuda::cast(w.value, w.copy16, 1, w.stream); }},
      {"flatten f32", 8, [&] { w.flattener.flatten(w.value, 1, w.stream); }},
      {"flatten f32 to bf16", 6, [&] { w.flattener.flatten(w.gradient16, 1, w.stream); }},
      {"unflatten bf16 to f32", 6, [&] { w.flattener.unflatten(w.gradient16, 1, w.stream); }},
  };
}

/// GB/s
double rate_of(const Row& row, std::size_t numel, float milliseconds) {
  return static_cast<double>(numel) * row.bytes_per_element / 1e6 / milliseconds;
}

/// A line for each kernel. The aim is a share of what a copy reaches; a kernel below it is seen in
/// the table, but fails nothing.
void bandwidth(Report& report, std::size_t numel) {
  constexpr double kAim = 80;
  Workload w(numel);
  const CudaApi& api = cuda_api();
  Stopwatch stopwatch;
  const Row copy{"copy", 8, [&] {
                   require_cuda(api,
                                api.cudaMemcpyAsync(w.first.data, w.value.data, w.value.bytes(),
                                                    kCudaMemcpyDefault, w.stream.handle()),
                                "cudaMemcpyAsync");
                 }};
  const double copy_rate = rate_of(copy, numel, stopwatch.median(w.stream, copy.work));
  report.note(fmt::format("{} elements; a copy moves {:.0f} GB/s; median of {}", numel, copy_rate,
                          kRepeats));
  fmt::print("{:24} {:>6} {:>10} {:>8} {:>14}\n", "kernel", "B/elem", "ms", "GB/s",
             "share of copy");
  std::string missed;
  double worst = 100;
  for (const auto& rows : {steps(w), passes(w)})
    for (const Row& row : rows) {
      const float milliseconds = stopwatch.median(w.stream, row.work);
      const double rate = rate_of(row, numel, milliseconds);
      const double share = 100 * rate / copy_rate;
      fmt::print("{:24} {:6} {:10.3f} {:8.0f} {:12.0f} %{}\n", row.name, row.bytes_per_element,
                 milliseconds, rate, share, share < kAim ? "  MISSED" : "");
      if (share < kAim)
        missed += fmt::format("{}{} {:.0f} %", missed.empty() ? "" : ", ", row.name, share);
      worst = std::min(worst, share);
    }
  report.figure(fmt::format("copy {:.0f} GB/s; {}", copy_rate,
                            missed.empty()
                                ? fmt::format("all kernels at {:.0f} % of it or more", worst)
                                : fmt::format("MISSED {:.0f} %: {}", kAim, missed)));
}

/// One step of AdamW, for a profiler.
void one_adamw(Report& report, std::size_t numel) {
  Workload w(numel);
  cuda::adamw_step({w.value, w.gradient16, w.first, w.second, w.copy16}, {}, 1, w.stream);
  w.stream.wait();
  report.note(fmt::format("elements {}, floor 28", numel));
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t numel = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : std::size_t{1} << 30;
  return run_mode(argc, argv,
                  {{"bandwidth", [&](Report& r) { bandwidth(r, numel); }},
                   {"adamw", [&](Report& r) { one_adamw(r, numel); }}});
}
