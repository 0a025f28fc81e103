// SPDX-License-Identifier: MIT
// What somebody with a trainer of his own CUDA code writes to make it data-parallel: one flat
// gradient in bf16, his own stream, an all-reduce ordered after it and the stream after that.
// Compares the weights with a computation on the CPU and prints OK.
#include <ddprun/cuda.h>
#include <ddprun/ddprun.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "flat_bf16_kernel.cuh"

namespace {

constexpr int kNumel = 4099;  // no multiple of anything that a kernel might like
constexpr int kSteps = 5;
constexpr ddprun::cuda::AdamWOptions kAdamW{.lr = 0.01, .weight_decay = 0.1};

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "flat_bf16: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

template <class T>
T* on_device(const std::vector<T>& values, cudaStream_t stream) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, values.size() * sizeof(T)));
  check(cudaMemcpyAsync(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice,
                        stream));
  return static_cast<T*>(memory);
}

float first_weight(int i) { return static_cast<float>(i % 9 - 4) + 0.5F; }

std::vector<float> train(ddprun::ProcessGroup& group) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::vector<float> start(kNumel);
  const std::vector<float> zeros(kNumel);
  std::vector<__nv_bfloat16> rounded(kNumel);
  for (int i = 0; i < kNumel; ++i) rounded[i] = __float2bfloat16(start[i] = first_weight(i));
  float* const weights = on_device(start, stream);
  float* const first_moment = on_device(zeros, stream);
  float* const second_moment = on_device(zeros, stream);
  __nv_bfloat16* const weights16 = on_device(rounded, stream);
  __nv_bfloat16* const gradient = on_device(rounded, stream);

  const auto view = [&](void* data, ddprun::DType dtype) {
    return ddprun::TensorView{data, kNumel, dtype, group.device()};
  };
  const ddprun::cuda::AdamWTensors tensors{.value = view(weights, ddprun::DType::f32),
                                           .gradient = view(gradient, ddprun::DType::bf16),
                                           .first_moment = view(first_moment, ddprun::DType::f32),
                                           .second_moment = view(second_moment, ddprun::DType::f32),
                                           .copy = view(weights16, ddprun::DType::bf16)};
  for (int step = 1; step <= kSteps; ++step) {
    flat_backward<<<(kNumel + 255) / 256, 256, 0, stream>>>(weights16, kNumel, group.rank(), step,
                                                            gradient);
    const ddprun::Work work =
        group.all_reduce({gradient, kNumel, ddprun::DType::bf16, group.device()},
                         ddprun::ReduceOp::avg, ddprun::Stream{stream}, true);
    work.wait_on({stream});  // the host goes on
    ddprun::cuda::adamw_step(tensors, kAdamW, step, {stream});
  }
  std::vector<float> result(kNumel);
  check(cudaMemcpyAsync(result.data(), weights, kNumel * sizeof(float), cudaMemcpyDeviceToHost,
                        stream));
  check(cudaStreamSynchronize(stream));
  for (void* const memory : {static_cast<void*>(weights), static_cast<void*>(first_moment),
                             static_cast<void*>(second_moment), static_cast<void*>(weights16),
                             static_cast<void*>(gradient)})
    check(cudaFree(memory));
  check(cudaStreamDestroy(stream));
  return result;
}

// The same by one rank that sees all gradients, in f64.
std::vector<double> expected_weights(int ranks) {
  std::vector<double> result;
  for (int i = 0; i < kNumel; ++i) {
    double weight = first_weight(i);
    double first = 0;
    double second = 0;
    const double sign = weight > 0 ? 1 : -1;
    for (int step = 1; step <= kSteps; ++step) {
      double sum = 0;
      for (int rank = 0; rank < ranks; ++rank) sum += ((i + 3 * step) % 7 + 2 * rank + 1) / 8.0;
      const double mean = __bfloat162float(__double2bfloat16(sign * sum / ranks));
      first += (1 - kAdamW.beta1) * (mean - first);
      second += (1 - kAdamW.beta2) * (mean * mean - second);
      const double root = std::sqrt(second / (1 - std::pow(kAdamW.beta2, step))) + kAdamW.eps;
      weight -= kAdamW.lr * kAdamW.weight_decay * weight;
      weight -= kAdamW.lr / (1 - std::pow(kAdamW.beta1, step)) * first / root;
    }
    result.push_back(weight);
  }
  return result;
}

int run(const ddprun::WorkerEnv& env) {
  auto group = ddprun::init_process_group(env, {.backend = "nccl"});
  if ((group.native_comm() != nullptr) != (group.size() > 1)) {
    std::fprintf(stderr, "flat_bf16: %d ranks, native_comm() %p\n", group.size(),
                 group.native_comm());
    return 1;
  }
  const std::vector<float> weights = train(group);
  const std::vector<double> expected = expected_weights(group.size());
  for (int i = 0; i < kNumel; ++i)
    if (!(std::abs(weights[i] - expected[i]) < 1e-5)) {
      std::fprintf(stderr, "flat_bf16: weight %d is %.9g, not %.9g\n", i, weights[i], expected[i]);
      return 1;
    }
  std::printf("rank %d of %d: OK\n", group.rank(), group.size());
  return 0;
}

}  // namespace

int main() {
  return ddprun::record(run, ddprun::WorkerEnv::from_environment().value_or(ddprun::WorkerEnv{}));
}
