// SPDX-License-Identifier: MIT
// Sgd on GPU memory over the double of CUDA: the bits of the CPU's Sgd, in the order of a stream.
#include <ddprun/cuda.h>
#include <ddprun/error.h>
#include <ddprun/optimizer.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include <doctest/doctest.h>

#include "support/gpu_ranks.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

constexpr Device kGpu{DeviceType::cuda, 0};
constexpr std::size_t kNumel = 1001;

template <class T>
constexpr DType kDType = DType::f32;
template <>
constexpr DType kDType<double> = DType::f64;

template <class T>
std::vector<T> numbers(int salt) {
  std::vector<T> result;
  for (std::size_t k = 0; k < kNumel; ++k)
    result.push_back(static_cast<T>((static_cast<int>(k) * 7 + salt) % 13 - 6) / T(3));
  return result;
}

void select_gpu() { require_cuda(cuda_api(), cuda_api().cudaSetDevice(0), "cudaSetDevice"); }

}  // namespace

TEST_SUITE("train") {
  TEST_CASE_TEMPLATE("Sgd on a GPU: values have the bits of the CPU's, with and without momentum",
                     T, float, double) {
    select_gpu();
    for (const double momentum : {0.0, 0.9}) {
      CAPTURE(momentum);
      std::vector<T> value = numbers<T>(1);
      std::vector<T> grad(kNumel);
      std::array on_cpu = {Parameter{"w", {kNumel}, view(value), view(grad)}};
      Sgd cpu(on_cpu, {.lr = 0.1, .momentum = momentum});
      GpuStream stream;
      const GpuArray<T> gpu_value(kNumel, kDType<T>, kGpu);
      const GpuArray<T> gpu_grad(kNumel, kDType<T>, kGpu);
      gpu_value.fill(stream, value);
      std::array on_gpu = {Parameter{"w", {kNumel}, gpu_value.view(), gpu_grad.view()}};
      Sgd gpu(on_gpu, {.lr = 0.1, .momentum = momentum});
      for (int step = 0; step < 3; ++step) {
        std::ranges::copy(numbers<T>(step), grad.begin());
        stream.write(gpu_grad.view().data, grad.data(), gpu_grad.bytes());
        gpu.step(stream.get());
        cpu.step();
        CHECK(gpu_value.values(stream) == value);
      }
      gpu.set_lr(0.2);
      cpu.set_lr(0.2);
      gpu.step(stream.get());
      cpu.step();
      CHECK(gpu_value.values(stream) == value);
    }
  }

  TEST_CASE("Sgd on a GPU: gradients are zeroed in the order of the stream") {
    select_gpu();
    GpuStream stream;
    const GpuArray<float> value(kNumel, DType::f32, kGpu);
    const GpuArray<float> grad(kNumel, DType::f32, kGpu);
    const std::vector<float> ones(kNumel, 1.0F);
    std::vector<float> host(kNumel);
    std::vector<Parameter> parameters = {{"on_gpu", {kNumel}, value.view(), grad.view()},
                                         {"on_cpu", {kNumel}, view(host), view(host)}};
    Sgd sgd(parameters, {});
    host = ones;
    stream.write(grad.view().data, ones.data(), grad.bytes());
    sgd.zero_grad(stream.get());
    CHECK(grad.values(stream) == std::vector<float>(kNumel));
    CHECK(host == std::vector<float>(kNumel));
  }

  TEST_CASE("Sgd on a GPU: a gradient on another device and a 16-bit parameter are named") {
    select_gpu();
    const GpuArray<float> value(4, DType::f32, kGpu);
    std::vector<float> host(4);
    std::vector<Parameter> parameters = {{"w", {4}, value.view(), view(host)}};
    Sgd sgd(parameters, {});
    CHECK_THROWS_WITH_AS(sgd.step(), doctest::Contains("'w'"), UsageError);
    parameters[0].value.dtype = DType::bf16;
    CHECK_THROWS_WITH_AS(Sgd(parameters, {}), doctest::Contains("'w' has dtype bf16"), UsageError);
  }
}
