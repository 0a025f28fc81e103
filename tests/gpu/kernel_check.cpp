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

void bandwidth(Report& report, std::size_t numel) {
  Arena arena(numel);
  const TensorView value = arena.make(DType::f32);
  const TensorView gradient = arena.make(DType::f32);
  const TensorView first = arena.make(DType::f32);
  const TensorView second = arena.make(DType::f32);
  const TensorView gradient16 = arena.make(DType::bf16);
  const TensorView copy16 = arena.make(DType::bf16);
  const auto parts = parts_of(gradient);
  const cuda::Flattener flattener(parts);
  cuda::GradientNorm norm;
  const test::OwnStream stream;
  const CudaApi& api = cuda_api();
  Stopwatch stopwatch;
  const auto rate_of = [&](int bytes_per_element, float milliseconds) {
    return static_cast<double>(numel) * bytes_per_element / 1e6 / milliseconds;
  };

  const double copy_rate = rate_of(8, stopwatch.median(stream, [&] {
    require_cuda(api,
                 api.cudaMemcpyAsync(first.data, value.data, value.bytes(), kCudaMemcpyDefault,
                                     stream.handle()),
                 "cudaMemcpyAsync");
  }));
  report.note(fmt::format("{} elements; a copy moves {:.0f} GB/s; median of {}", numel, copy_rate,
                          kRepeats));
  const std::vector<Row> rows = {
      {"sgd f32", 12,
       [&] {
         cuda::sgd_step({value, gradient}, {.lr = 0.1}, stream);
       }},
      {"sgd f32 momentum", 20,
       [&] {
         cuda::sgd_step({value, gradient, first}, {.lr = 0.1, .momentum = 0.9}, stream);
       }},
      {"sgd bf16 momentum copy", 20,
       [&] {
         cuda::sgd_step({value, gradient16, first, copy16}, {.lr = 0.1, .momentum = 0.9}, stream);
       }},
      {"adamw f32", 28,
       [&] {
         cuda::adamw_step({value, gradient, first, second}, {}, 1, stream);
       }},
      {"adamw f32 copy", 30,
       [&] {
         cuda::adamw_step({value, gradient, first, second, copy16}, {}, 1, stream);
       }},
      {"adamw bf16 copy", 28,
       [&] {
         cuda::adamw_step({value, gradient16, first, second, copy16}, {}, 1, stream);
       }},
      {"norm f32", 4,
       [&] {
         norm.compute({&gradient, 1}, 1, 1, stream);
       }},
      {"norm bf16", 2,
       [&] {
         norm.compute({&gradient16, 1}, 1, 1, stream);
       }},
      {"scale f32", 8, [&] { cuda::cast(value, value, 0.5, stream); }},
      {"scale bf16", 4, [&] { cuda::cast(copy16, copy16, 0.5, stream); }},
      {"cast f32 to bf16", 6, [&] { cuda::cast(copy16, value, 1, stream); }},
      {"cast bf16 to f32", 6, [&] { cuda::cast(value, copy16, 1, stream); }},
      {"flatten f32", 8, [&] { flattener.flatten(value, 1, stream); }},
      {"flatten f32 to bf16", 6, [&] { flattener.flatten(gradient16, 1, stream); }},
      {"unflatten bf16 to f32", 6, [&] { flattener.unflatten(gradient16, 1, stream); }},
  };
  fmt::print("{:24} {:>6} {:>10} {:>8} {:>14}\n", "kernel", "B/elem", "ms", "GB/s",
             "share of copy");
  double worst = 1e9;
  std::string worst_name;
  for (const Row& row : rows) {
    const float milliseconds = stopwatch.median(stream, row.work);
    const double rate = rate_of(row.bytes_per_element, milliseconds);
    fmt::print("{:24} {:6} {:10.3f} {:8.0f} {:12.0f} %\n", row.name, row.bytes_per_element,
               milliseconds, rate, 100 * rate / copy_rate);
    if (rate >= worst) continue;
    worst = rate;
    worst_name = row.name;
  }
  report.figure(fmt::format("copy {:.0f} GB/s; slowest: {} {:.0f} %", copy_rate, worst_name,
                            100 * worst / copy_rate));
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t numel = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : std::size_t{1} << 30;
  return run_mode(argc, argv, {{"bandwidth", [&](Report& r) { bandwidth(r, numel); }}});
}
