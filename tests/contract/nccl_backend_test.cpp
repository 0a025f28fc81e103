// SPDX-License-Identifier: MIT
// The contract of operations on GPU memory, with ranks as threads over the doubles of CUDA and
// NCCL.
#include <bit>
#include <cmath>
#include <cstdint>
#include <exception>
#include <map>
#include <optional>
#include <thread>

#include <dlfcn.h>
#include <doctest/doctest.h>

#include "comm/nccl/nccl_api.h"
#include "support/gpu_ranks.h"
#include "support/scoped_env.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

constexpr std::size_t kNumel = 1003;

/// 16-bit floating point as bits.
struct Half {
  std::uint16_t bits;
  friend bool operator==(Half, Half) = default;
};
struct Brain {
  std::uint16_t bits;
  friend bool operator==(Brain, Brain) = default;
};

template <class T>
struct Element {
  static double from(T value) { return static_cast<double>(value); }
  static T to(double value) { return static_cast<T>(value); }
};
template <>
struct Element<Brain> {
  static double from(Brain value) {
    return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16));
  }
  static Brain to(double value) {  // to nearest, ties to even
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    return {static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
  }
};
template <>
struct Element<Half> {  // normal numbers are enough here
  static double from(Half value) {
    if (value.bits == 0) return 0;
    const double mantissa = 1 + (value.bits & 0x3ff) / 1024.0;
    const double magnitude = std::ldexp(mantissa, (value.bits >> 10 & 31) - 15);
    return value.bits & 0x8000 ? -magnitude : magnitude;
  }
  static Half to(double value) {
    if (value == 0) return {0};
    int exponent = 0;
    const double mantissa = std::frexp(std::fabs(value), &exponent);  // in [0.5, 1)
    const auto steps = static_cast<int>(std::nearbyint(std::ldexp(mantissa, 11)));
    const int bits = (exponent + 14) * 1024 + (steps - 1024);  // a carry moves the exponent
    return {static_cast<std::uint16_t>(bits | (value < 0 ? 0x8000 : 0))};
  }
};

template <class T>
constexpr DType kDType = DType::f32;
template <>
constexpr DType kDType<double> = DType::f64;
template <>
constexpr DType kDType<std::int32_t> = DType::i32;
template <>
constexpr DType kDType<std::int64_t> = DType::i64;
template <>
constexpr DType kDType<Half> = DType::f16;
template <>
constexpr DType kDType<Brain> = DType::bf16;

double input(int rank, std::size_t i) { return rank + 1 + static_cast<double>(i % 7); }

double reference(ReduceOp op, int n, std::size_t i) {
  switch (op) {
    case ReduceOp::min:
      return input(0, i);
    case ReduceOp::max:
      return input(n - 1, i);
    default:
      break;
  }
  double sum = 0;
  for (int rank = 0; rank < n; ++rank) sum += input(rank, i);
  return op == ReduceOp::sum ? sum : sum / n;
}

template <class T>
std::vector<T> inputs(int rank, std::size_t numel = kNumel) {
  std::vector<T> values(numel);
  for (std::size_t i = 0; i < numel; ++i) values[i] = Element<T>::to(input(rank, i));
  return values;
}

/// Elements that differ from the reference.
template <class T>
int wrong(const std::vector<T>& values, ReduceOp op, int n) {
  int count = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double expected = Element<T>::from(Element<T>::to(reference(op, n, i)));
    const double got = Element<T>::from(values[i]);
    const bool exact = op != ReduceOp::avg || sizeof(T) == 2;
    count += exact ? got != expected : std::fabs(got - expected) > 1e-6 * expected;
  }
  return count;
}

template <class T>
void check_all_reduce(ReduceOp op, int n) {
  run_gpu_group(n, [&](ProcessGroup& group) {
    GpuStream stream;
    const GpuArray<T> data(kNumel, kDType<T>, group.device());
    data.fill(stream, inputs<T>(group.rank()));
    group.all_reduce(data.view(), op, stream.get());
    CHECK_EQ(wrong(data.values(stream), op, n), 0);
  });
}

}  // namespace

TEST_SUITE("contract") {
  TEST_CASE_TEMPLATE("NcclBackend: all_reduce gives the reference", T, float, double, std::int32_t,
                     std::int64_t, Half, Brain) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max})
      for (const int n : {1, 2, 4, 8}) check_all_reduce<T>(op, n);
  }

  TEST_CASE_TEMPLATE("NcclBackend: the mean is rounded once", T, float, double, Half, Brain) {
    for (const int n : {1, 2, 3, 4, 6, 8}) check_all_reduce<T>(ReduceOp::avg, n);
  }

  TEST_CASE("NcclBackend: broadcast copies from every root") {
    for (const int n : {1, 2, 4})
      for (int root = 0; root < n; ++root)
        run_gpu_group(n, [&](ProcessGroup& group) {
          GpuStream stream;
          const GpuArray<float> data(kNumel, DType::f32, group.device());
          data.fill(stream, inputs<float>(group.rank()));
          group.broadcast(data.view(), root, stream.get());
          CHECK(data.values(stream) == inputs<float>(root));
        });
  }

  TEST_CASE("NcclBackend: barrier returns when all ranks have come") {
    for (const int n : {1, 2, 4}) {
      std::atomic<int> arrived{0};
      run_gpu_group(n, [&](ProcessGroup& group) {
        arrived.fetch_add(1);
        group.barrier();
        CHECK(arrived.load() == n);
      });
    }
  }

  TEST_CASE("NcclBackend: an operation runs after what its stream has, and the stream after it") {
    run_gpu_group(2, [](ProcessGroup& group) {
      GpuStream stream;
      const GpuArray<float> data(kNumel, DType::f32, group.device());
      for (int step = 0; step < 20; ++step) {
        const std::vector<float> values(kNumel, static_cast<float>(group.rank() + step));
        std::vector<float> result(kNumel);
        stream.write(data.view().data, values.data(), data.bytes());
        group.all_reduce(data.view(), ReduceOp::sum, stream.get());
        stream.read(result.data(), data.view().data, data.bytes());
        stream.finish();
        CHECK(result == std::vector<float>(kNumel, static_cast<float>(2 * step + 1)));
      }
    });
  }

  TEST_CASE("NcclBackend: buckets are reduced while others are computed and used") {
    constexpr int kBuckets = 4;
    run_gpu_group(4, [](ProcessGroup& group) {
      GpuStream backward, update;
      const auto arena = group.allocate(kBuckets * kNumel * sizeof(float), group.device());
      const auto bucket = [&](std::size_t b) {
        return TensorView{arena.get() + b * kNumel * sizeof(float), kNumel, DType::f32,
                          group.device()};
      };
      for (int step = 0; step < 10; ++step) {
        const std::vector<float> gradient(kNumel, static_cast<float>(group.rank() * step));
        std::vector<Work> works;
        std::vector<std::vector<float>> used(kBuckets, std::vector<float>(kNumel));
        for (std::size_t b = 0; b < kBuckets; ++b) {
          backward.write(bucket(b).data, gradient.data(), bucket(b).bytes());
          works.push_back(group.all_reduce(bucket(b), ReduceOp::avg, backward.get(), true));
        }
        for (std::size_t b = 0; b < kBuckets; ++b) {
          works[b].wait_on(update.get());
          update.read(used[b].data(), bucket(b).data, bucket(b).bytes());
        }
        update.finish();
        for (const auto& values : used)
          CHECK(values == std::vector<float>(kNumel, 1.5f * static_cast<float>(step)));
      }
    });
  }

  TEST_CASE("NcclBackend: a Work is its own operation, whatever is called after it") {
    run_gpu_group(2, [](ProcessGroup& group) {
      GpuStream producer, consumer, idle;
      const GpuArray<float> data(kNumel, DType::f32, group.device());
      for (int step = 0; step < 10; ++step) {
        const auto values = inputs<float>(group.rank());
        std::vector<float> result(kNumel);
        producer.write(data.view().data, values.data(), data.bytes());
        const Work work = group.all_reduce(data.view(), ReduceOp::sum, producer.get(), true);
        group.order_after(idle.get());  // uses an event too
        work.wait_on(consumer.get());
        consumer.read(result.data(), data.view().data, data.bytes());
        consumer.finish();
        CHECK_EQ(wrong(result, ReduceOp::sum, 2), 0);
      }
    });
  }

  TEST_CASE("NcclBackend: wait returns when the result is in memory") {
    run_gpu_group(2, [](ProcessGroup& group) {
      GpuStream stream, other;
      const GpuArray<float> data(kNumel, DType::f32, group.device());
      const auto values = inputs<float>(group.rank());
      stream.write(data.view().data, values.data(), data.bytes());
      const Work work = group.all_reduce(data.view(), ReduceOp::sum, stream.get(), true);
      work.wait();
      CHECK(work.done());
      CHECK_EQ(wrong(data.values(other), ReduceOp::sum, 2), 0);
    });
  }

  TEST_CASE("NcclBackend: order_after orders later operations after a further stream") {
    run_gpu_group(2, [](ProcessGroup& group) {
      GpuStream first, second, consumer;
      const GpuArray<float> data(2 * kNumel, DType::f32, group.device());
      for (int step = 0; step < 10; ++step) {
        const std::vector<float> half(kNumel, static_cast<float>(step));
        std::vector<float> result(2 * kNumel);
        first.write(data.view().data, half.data(), data.bytes() / 2);
        second.write(static_cast<float*>(data.view().data) + kNumel, half.data(), data.bytes() / 2);
        group.order_after(second.get());
        group.all_reduce(data.view(), ReduceOp::sum, first.get(), true).wait_on(consumer.get());
        consumer.read(result.data(), data.view().data, data.bytes());
        consumer.finish();
        CHECK(result == std::vector<float>(2 * kNumel, static_cast<float>(2 * step)));
      }
    });
  }

  TEST_CASE("NcclBackend: allocate gives zeroed memory that outlives the group") {
    for (const int n : {1, 2, 4})
      run_ranks(n, [store = make_hash_store(), n](int rank) {
        std::shared_ptr<std::byte[]> memory;
        {
          ProcessGroup group(store, rank, n, on_gpu(rank));
          for (int round = 0; round < 5; ++round) {
            GpuStream stream;
            memory = group.allocate(kNumel * sizeof(float), group.device());
            std::vector<float> values(kNumel, 1);
            stream.read(values.data(), memory.get(), kNumel * sizeof(float));
            const std::vector<float> ones(kNumel, 1);
            stream.write(memory.get(), ones.data(), kNumel * sizeof(float));
            stream.finish();
            CHECK(values == std::vector<float>(kNumel, 0));
          }
        }
        GpuStream stream;
        std::vector<float> values(kNumel);
        stream.read(values.data(), memory.get(), kNumel * sizeof(float));
        stream.finish();
        CHECK(values == std::vector<float>(kNumel, 1));
      });
  }

  TEST_CASE("NcclBackend: no elements keep the order of streams") {
    run_gpu_group(2, [](ProcessGroup& group) {
      GpuStream producer, consumer;
      const GpuArray<float> data(kNumel, DType::f32, group.device());
      const TensorView nothing{nullptr, 0, DType::f32, group.device()};
      const auto values = inputs<float>(group.rank());
      std::vector<float> result(kNumel);
      producer.write(data.view().data, values.data(), data.bytes());
      const Work work = group.all_reduce(nothing, ReduceOp::sum, producer.get(), true);
      group.broadcast(nothing, 0, producer.get());
      work.wait_on(consumer.get());
      consumer.read(result.data(), data.view().data, data.bytes());
      consumer.finish();
      CHECK(result == values);
    });
  }

  TEST_CASE("NcclBackend: one rank needs no NCCL and keeps the order of streams") {
    const std::map<std::string, std::optional<std::string>> nowhere = {
        {"DDPRUN_NCCL_LIB", "/nonexistent/libnccl.so.2"}};
    const ScopedEnv no_nccl(nowhere);
    run_gpu_group(1, [](ProcessGroup& group) {
      GpuStream producer, consumer;
      const GpuArray<float> data(kNumel, DType::f32, group.device());
      const auto values = inputs<float>(0);
      std::vector<float> result(kNumel);
      producer.write(data.view().data, values.data(), data.bytes());
      const Work work = group.all_reduce(data.view(), ReduceOp::avg, producer.get(), true);
      work.wait_on(consumer.get());
      consumer.read(result.data(), data.view().data, data.bytes());
      consumer.finish();
      CHECK(result == values);
      group.broadcast(data.view(), 0, producer.get());
      group.barrier();
      CHECK(work.done());
      CHECK(group.native_comm() == nullptr);
      CHECK(group.backend() == "nccl");
    });
  }

  TEST_CASE("NcclBackend: native_comm is NCCL's communicator") {
    run_gpu_group(2, [](ProcessGroup& group) {
      CHECK(group.native_comm() != nullptr);
      NcclResult state = kNcclInternalError;
      CHECK_EQ(nccl_api().ncclCommGetAsyncError(group.native_comm(), &state), kNcclSuccess);
      CHECK_EQ(state, kNcclSuccess);
      group.barrier();
    });
  }

  TEST_CASE("NcclBackend: a stream that is being captured is refused, and the group goes on") {
    run_gpu_group(2, [](ProcessGroup& group) {
      void* const cudart = ::dlopen(cuda_api().path.c_str(), RTLD_NOW);
      const auto begin = reinterpret_cast<CudaError (*)(CudaStream, int)>(
          ::dlsym(cudart, "cudaStreamBeginCapture"));
      const auto end = reinterpret_cast<CudaError (*)(CudaStream, void**)>(
          ::dlsym(cudart, "cudaStreamEndCapture"));
      GpuStream stream;
      const GpuArray<float> data(kNumel, DType::f32, group.device());
      data.fill(stream, inputs<float>(group.rank()));
      CHECK_EQ(begin(stream.get().handle, kCudaCaptureModeThreadLocal), kCudaSuccess);
      CHECK_THROWS_WITH_AS(group.all_reduce(data.view(), ReduceOp::sum, stream.get()),
                           doctest::Contains("being captured in a CUDA graph"), UsageError);
      void* graph = nullptr;
      CHECK_EQ(end(stream.get().handle, &graph), kCudaSuccess);
      group.all_reduce(data.view(), ReduceOp::sum, stream.get());
      CHECK_EQ(wrong(data.values(stream), ReduceOp::sum, 2), 0);
    });
  }

  TEST_CASE("NcclBackend: operations come from any thread, whatever its device is") {
    run_gpu_group(2, [](ProcessGroup& group) {
      GpuStream stream;
      const GpuArray<float> data(kNumel, DType::f32, group.device());
      data.fill(stream, inputs<float>(group.rank()));
      std::exception_ptr error;
      std::thread([&] {
        try {  // its device is number 0
          const auto memory = group.allocate(8, group.device());
          group.all_reduce(data.view(), ReduceOp::sum, stream.get(), true).wait();
          group.barrier();
        } catch (...) {
          error = std::current_exception();
        }
      }).join();
      if (error) std::rethrow_exception(error);
      CHECK_EQ(wrong(data.values(stream), ReduceOp::sum, 2), 0);
    });
  }

  TEST_CASE("NcclBackend: its operations and those on CPU memory share one order") {
    run_gpu_group(2, [](ProcessGroup& group) {
      GpuStream stream;
      const GpuArray<float> data(kNumel, DType::f32, group.device());
      data.fill(stream, inputs<float>(group.rank()));
      for (int i = 0; i < 5; ++i) {
        const Work work = group.all_reduce(data.view(), ReduceOp::avg, stream.get(), true);
        CHECK(group.mean(group.rank()) == 0.5);
        work.wait();
      }
    });
  }
}
