// SPDX-License-Identifier: MIT
// DistributedDataParallel and Sgd on GPU memory, with ranks as threads over the doubles of CUDA and
// NCCL: what is ordered after what, and every way to get a step wrong.
#include <ddprun/cuda.h>
#include <ddprun/ddp.h>
#include <ddprun/optimizer.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/core.h>

#include "support/gpu_ranks.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

constexpr std::array<std::size_t, 7> kNumels = {128, 16, 3, 200, 1, 8, 64};

double gradient_of(std::size_t i, std::size_t k, int rank, int step) {
  return 12.0 * static_cast<double>(i + k % 7) + 24.0 * rank * (step + 1);
}

double mean_gradient(std::size_t i, std::size_t k, int world, int step) {
  return gradient_of(i, k, 0, step) + 12.0 * (world - 1) * (step + 1);
}

/// A model without a network: parameters in GPU memory, gradients written by formula on a stream.
class GpuModel {
 public:
  explicit GpuModel(Device device) {
    for (std::size_t i = 0; i < kNumels.size(); ++i) {
      values_.push_back(std::make_unique<GpuArray<double>>(kNumels[i], DType::f64, device));
      host_.emplace_back(kNumels[i]);
      parameters.push_back(
          {fmt::format("p{}", i), {static_cast<std::int64_t>(kNumels[i])}, values_[i]->view(), {}});
    }
  }
  /// Element k of parameter i becomes fn(i, k), in the order of the stream. Not before the stream
  /// has done what the last call put on it.
  template <class Fn>
  void write(GpuStream& stream, std::size_t i, const TensorView& at, Fn fn) {
    for (std::size_t k = 0; k < host_[i].size(); ++k) host_[i][k] = fn(i, k);
    stream.write(at.data, host_[i].data(), at.bytes());
  }
  void write_values(GpuStream& stream, double first) {
    for (std::size_t i = 0; i < parameters.size(); ++i)
      write(stream, i, parameters[i].value,
            [&](auto p, auto k) { return first + static_cast<double>(100 * p + k); });
  }
  void backward(GpuStream& stream, std::size_t i, int rank, int step) {
    write(stream, i, parameters[i].grad,
          [&](auto p, auto k) { return gradient_of(p, k, rank, step); });
  }

  std::vector<Parameter> parameters;

 private:
  std::vector<std::unique_ptr<GpuArray<double>>> values_;
  std::vector<std::vector<double>> host_;
};

std::vector<double> read(GpuStream& stream, const TensorView& tensor) {
  std::vector<double> host(tensor.numel);
  stream.read(host.data(), tensor.data, tensor.bytes());
  stream.finish();
  return host;
}

/// Elements that are not the mean over all ranks, seen from `stream`.
int wrong(GpuStream& stream, const GpuModel& model, int world, int step) {
  int count = 0;
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    const std::vector<double> grad = read(stream, model.parameters[i].grad);
    for (std::size_t k = 0; k < grad.size(); ++k)
      count += grad[k] != mean_gradient(i, k, world, step);
  }
  return count;
}

/// Keeps a stream at work for tens of milliseconds.
class Busy {
 public:
  explicit Busy(Device device) : memory_(kBytes, DType::f32, device) {}
  void keep(GpuStream& stream) {
    for (int i = 0; i < 16; ++i)
      require_cuda(cuda_api(),
                   cuda_api().cudaMemsetAsync(memory_.view().data, i, kBytes, stream.get().handle),
                   "cudaMemsetAsync");
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{8} << 20;
  GpuArray<std::byte> memory_;
};

}  // namespace

TEST_SUITE("ddp") {
  TEST_CASE(
      "DDP on GPUs: gradients are the mean over ranks in every step, with every bucket size") {
    for (const int world : {1, 2, 4})
      for (const std::size_t bucket_bytes :
           {std::size_t{1}, std::size_t{600}, std::size_t{1} << 20}) {
        CAPTURE(world);
        CAPTURE(bucket_bytes);
        run_gpu_group(world, [&](ProcessGroup& group) {
          GpuStream stream;
          GpuModel model(group.device());
          model.write_values(stream, 0);
          DistributedDataParallel ddp(group, model.parameters,
                                      {.bucket_bytes = bucket_bytes, .stream = stream.get()});
          const std::int64_t bytes_before = group.stats().all_reduce.bytes;
          for (int step = 0; step < 3; ++step) {
            for (std::size_t i = kNumels.size(); i-- > 0;) {
              model.backward(stream, i, group.rank(), step);
              ddp.mark_ready(i, stream.get());
            }
            ddp.synchronize(stream.get());
            CHECK_EQ(wrong(stream, model, world, step), 0);
          }
          const std::size_t elements = 128 + 16 + 3 + 200 + 1 + 8 + 64;
          CHECK_EQ(group.stats().all_reduce.bytes - bytes_before, 3 * elements * sizeof(double));
        });
      }
  }

  TEST_CASE("DDP on GPUs: a bucket waits for every stream that wrote a gradient of it") {
    run_gpu_group(2, [](ProcessGroup& group) {
      GpuStream first, second, optimizer;
      GpuModel model(group.device());
      Busy busy(group.device());
      model.write_values(first, 0);
      DistributedDataParallel ddp(group, model.parameters, {.stream = first.get()});
      CHECK_EQ(ddp.bucket_count(), 1);
      for (int step = 0; step < 4; ++step) {
        busy.keep(step % 2 == 0 ? first : second);
        for (std::size_t i = kNumels.size(); i-- > 0;) {
          GpuStream& stream = i % 2 == 0 ? first : second;
          model.backward(stream, i, group.rank(), step);
          ddp.mark_ready(i, stream.get());
        }
        ddp.synchronize(optimizer.get());
        CHECK_EQ(wrong(optimizer, model, 2, step), 0);
      }
    });
  }

  TEST_CASE("DDP on GPUs: the values that rank 0 wrote on a stream are given to all ranks") {
    run_gpu_group(3, [](ProcessGroup& group) {
      GpuStream stream;
      GpuModel model(group.device());
      Busy busy(group.device());
      busy.keep(stream);
      model.write_values(stream, 1000.0 * (group.rank() + 1));
      const DistributedDataParallel ddp(group, model.parameters, {.stream = stream.get()});
      for (std::size_t i = 0; i < kNumels.size(); ++i) {
        const std::vector<double> values = read(stream, model.parameters[i].value);
        for (std::size_t k = 0; k < values.size(); ++k)
          CHECK_EQ(values[k], 1000.0 + static_cast<double>(100 * i + k));
        const std::vector<double> grad = read(stream, model.parameters[i].grad);
        CHECK(grad == std::vector<double>(kNumels[i]));
      }
    });
  }

  TEST_CASE("DDP on GPUs: the host does not wait for a rank that has not begun its step") {
    std::latch rank_0_is_through(1);
    run_gpu_group(2, [&](ProcessGroup& group) {
      GpuStream stream;
      GpuModel model(group.device());
      model.write_values(stream, 0);
      DistributedDataParallel ddp(group, model.parameters,
                                  {.bucket_bytes = 600, .stream = stream.get()});
      if (group.rank() == 1) rank_0_is_through.wait();
      for (std::size_t i = kNumels.size(); i-- > 0;) {
        model.backward(stream, i, group.rank(), 0);
        ddp.mark_ready(i, stream.get());
      }
      ddp.synchronize(stream.get());
      if (group.rank() == 0) rank_0_is_through.count_down();
      CHECK_EQ(wrong(stream, model, 2, 0), 0);
    });
  }

  TEST_CASE("DDP on GPUs: a parameter that was not marked is named on every rank") {
    const auto store = make_hash_store();
    const auto errors = errors_of_ranks(2, [&](int rank) {
      ProcessGroup group(store, rank, 2, on_gpu(rank));
      GpuStream stream;
      GpuModel model(group.device());
      model.write_values(stream, 0);
      DistributedDataParallel ddp(group, model.parameters, {.stream = stream.get()});
      for (std::size_t i = kNumels.size(); i-- > 0;) {
        if (rank == 1 && i == 4) continue;
        model.backward(stream, i, rank, 0);
        ddp.mark_ready(i, stream.get());
      }
      stream.finish();  // the model goes away with an exception
      ddp.synchronize(stream.get());
      group.barrier();  // rank 0, whose stream alone waits, learns of it at the latest here
    });
    for (const std::string& error : errors) {
      CAPTURE(error);
      CHECK(error.find("rank 1 did not mark parameter 4 'p4'") != std::string::npos);
    }
  }

  TEST_CASE("DDP on GPUs: parameters in CPU memory are trained by the same group") {
    run_gpu_group(2, [](ProcessGroup& group) {
      std::vector<double> value(5, group.rank() + 1.0);
      std::vector<Parameter> parameters = {{"w", {5}, view(value), {}}};
      DistributedDataParallel ddp(group, parameters);
      CHECK(value == std::vector<double>(5, 1.0));
      auto* const grad = static_cast<double*>(parameters[0].grad.data);
      for (int k = 0; k < 5; ++k) grad[k] = k + 4.0 * group.rank();
      ddp.mark_ready(0);
      ddp.synchronize();
      for (int k = 0; k < 5; ++k) CHECK_EQ(grad[k], k + 2.0);
    });
  }

  TEST_CASE("DDP on GPUs: parameters on two devices, or on the GPU of another rank, are refused") {
    const auto construct = [](auto place) {
      const auto store = make_hash_store();
      return errors_of_ranks(2, [&](int rank) {
        ProcessGroup group(store, rank, 2, on_gpu(rank));
        GpuModel model(group.device());
        std::vector<double> host(3);
        place(model.parameters, host);
        const DistributedDataParallel ddp(group, model.parameters);
      });
    };
    for (const std::string& error :
         construct([](auto&parameters, auto&host) { parameters[2].value = view(host); }))
      CHECK_MESSAGE(
          error.find("'p2' f64 [3]: it is not on the device of parameter 0") != std::string::npos,
          error);
    for (const std::string& error : construct([](auto&parameters, auto&) {
           parameters[1].value.device.index = 1 - parameters[1].value.device.index;
         }))
      CHECK_MESSAGE(
          error.find("'p1' f64 [16]: it is neither on the GPU of the group") != std::string::npos,
          error);
  }
}
