// SPDX-License-Identifier: MIT
// The contract of operations on GPU memory, with ranks as threads over the doubles of CUDA and
// NCCL.
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>

#include <doctest/doctest.h>

#include "comm/nccl/nccl_api.h"
#include "support/gpu_ranks.h"

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
}
