// SPDX-License-Identifier: MIT
// Every kernel through its public function, against the formula in f64 and, where it is one element
// at a time, bit by bit against the element function. Runs over the test double, whose kernels are
// the same sources compiled for CPUs; tests/gpu runs the same cases on a GPU.
#include <ddprun/cuda.h>
#include <ddprun/error.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "cuda/element.h"
#include "support/device_array.h"

using namespace ddprun;
using test::DeviceArray;
using test::OwnStream;

namespace {

const std::vector<std::size_t> kSizes = {0, 1, 7, 255, 256, 4097};
constexpr std::size_t kShifts = 3;  // alignments: of arrays alike, and against each other

constexpr double kRoundOff = 6e-8;  // half a unit in the last place of f32

template <class T>
double relative_round_off() {
  return std::is_same_v<T, Bf16> ? 0x1p-8 : std::is_same_v<T, F16> ? 0x1p-11 : kRoundOff;
}

template <class T>
T make(double value) {
  if constexpr (std::is_same_v<T, double>)
    return value;
  else
    return round_to<T>(static_cast<float>(value));
}

double value_of(double value) { return value; }
template <class T>
double value_of(T value) {
  return double{to_f32(value)};
}

template <class T>
std::vector<T> random_values(std::size_t n, unsigned seed, double lowest = -2, double highest = 2) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> distribution(lowest, highest);
  std::vector<T> values(n);
  for (T& value : values) value = make<T>(distribution(random));
  return values;
}

template <class T>
std::vector<T> poison(std::size_t n) {
  return std::vector<T>(n, make<T>(NAN));
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <class In, class Out>
void check_cast(std::size_t n, std::size_t in_shift, std::size_t out_shift) {
  const OwnStream stream;
  const auto values = random_values<In>(n, 1);
  const DeviceArray<In> in(stream, values, in_shift);
  const DeviceArray<Out> out(stream, poison<Out>(n), out_shift);
  const double factor = 1.0 / 3;
  cuda::cast(out.view(), in.view(), factor, stream);
  const auto result = out.read();
  const auto error_limit = relative_round_off<Out>() + 2 * kRoundOff;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double expected = value_of(values[i]) * factor;
    if (!(std::abs(value_of(result[i]) - expected) <= error_limit * std::abs(expected) + 1e-7))
      ++wrong;
  }
  CHECK(wrong == 0);
  CHECK(same_bits(in.read(), values));
}

struct Result {
  double norm, factor;
  int found_inf, steps;
};

Result norm_of(const OwnStream& stream, const std::vector<TensorView>& gradients, double unscale,
               double max_norm) {
  cuda::GradientNorm norm;
  norm.compute(gradients, unscale, max_norm, stream);
  const auto result = norm.read(stream, Deadline::after(std::chrono::seconds(60)));
  return {result.norm, result.factor, result.found_inf, result.steps};
}

template <class T>
void check_norm(std::size_t n, std::size_t shift) {
  const OwnStream stream;
  const auto values = random_values<T>(n, 3);
  const DeviceArray<T> gradient(stream, values, shift);
  double squares = 0;
  for (const T value : values) squares += value_of(value) * value_of(value);
  const double norm = 0.5 * std::sqrt(squares);
  const Result result = norm_of(stream, {gradient.view()}, 0.5, 1.0);
  CHECK(result.norm == doctest::Approx(norm).epsilon(1e-6));
  CHECK(result.factor == doctest::Approx(0.5 * std::min(1.0, 1 / (norm + 1e-6))).epsilon(1e-6));
  CHECK(result.found_inf == 0);
  CHECK(result.steps == 1);
}

template <class Gradient, class Copy>
void check_sgd(std::size_t n, std::size_t shift) {
  const OwnStream stream;
  auto value = random_values<float>(n, 4);
  auto momentum = random_values<float>(n, 5);
  const auto gradient = random_values<Gradient>(n, 6);
  const DeviceArray<float> device_value(stream, value);
  const DeviceArray<float> device_momentum(stream, momentum, shift);
  const DeviceArray<Gradient> device_gradient(stream, gradient, shift);
  const DeviceArray<Copy> copy(stream, poison<Copy>(n), 1);
  cuda::sgd_step({device_value.view(), device_gradient.view(), device_momentum.view(), copy.view()},
                 {.lr = 0.1, .momentum = 0.9}, stream);
  std::vector<Copy> expected_copy(n);
  for (std::size_t i = 0; i < n; ++i) {
    sgd_element(value[i], momentum[i], to_f32(gradient[i]), 0.1f, 0.9f);
    expected_copy[i] = round_to<Copy>(value[i]);
  }
  CHECK(same_bits(device_value.read(), value));
  CHECK(same_bits(device_momentum.read(), momentum));
  CHECK(same_bits(copy.read(), expected_copy));
}

/// What an AdamW step works on, on the host; `on_gpu` puts it on the GPU, shifted.
template <class Gradient>
struct AdamWCase {
  explicit AdamWCase(std::size_t n)
      : value(random_values<float>(n, 7)),
        first(random_values<float>(n, 8)),
        second(random_values<float>(n, 9, 0, 2)),
        gradient(random_values<Gradient>(n, 10)) {}
  std::vector<float> value, first, second;
  std::vector<Gradient> gradient;

  void step(const cuda::AdamWOptions& o, int number, float factor) {
    const auto factors = adamw_factors(o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, number);
    for (std::size_t i = 0; i < value.size(); ++i)
      adamw_element(value[i], first[i], second[i], to_f32(gradient[i]) * factor, factors);
  }
};

template <class Gradient, class Copy>
struct AdamWOnGpu {
  AdamWOnGpu(const OwnStream& stream, const AdamWCase<Gradient>& c, std::size_t shift)
      : value(stream, c.value, shift),
        first(stream, c.first),
        second(stream, c.second, shift),
        gradient(stream, c.gradient, shift),
        copy(stream, poison<Copy>(c.value.size())) {}
  DeviceArray<float> value, first, second;
  DeviceArray<Gradient> gradient;
  DeviceArray<Copy> copy;

  cuda::AdamWTensors tensors(const cuda::NormResult* norm = nullptr) const {
    return {value.view(), gradient.view(), first.view(), second.view(), copy.view(), norm};
  }
};

template <class Gradient, class Copy>
void check_adamw(std::size_t n, std::size_t shift) {
  const OwnStream stream;
  AdamWCase<Gradient> expected(n);
  const AdamWOnGpu<Gradient, Copy> gpu(stream, expected, shift);
  const cuda::AdamWOptions options;
  cuda::adamw_step(gpu.tensors(), options, 3, stream);
  expected.step(options, 3, 1.0f);
  CHECK(same_bits(gpu.value.read(), expected.value));
  CHECK(same_bits(gpu.first.read(), expected.first));
  CHECK(same_bits(gpu.second.read(), expected.second));
  std::vector<Copy> copy(n);
  for (std::size_t i = 0; i < n; ++i) copy[i] = round_to<Copy>(expected.value[i]);
  CHECK(same_bits(gpu.copy.read(), copy));
}

/// Also one for which the grid of a GPU goes round more than once.
template <class Body>
void for_all_sizes(Body body) {
  body(cuda_api().test_double ? 70001 : (std::size_t{1} << 22) + 3, 1);
  for (const std::size_t n : kSizes)
    for (std::size_t shift = 0; shift < kShifts; ++shift) {
      CAPTURE(n);
      CAPTURE(shift);
      body(n, shift);
    }
}

TensorView on_gpu(std::size_t numel, DType dtype = DType::f32, int device = 0) {
  static const auto memory = cuda::allocate(4096);
  return {memory.get(), numel, dtype, {DeviceType::cuda, device}};
}

}  // namespace

TEST_SUITE_BEGIN("cuda");

TEST_CASE("cast: every pair of types, rounded once, at any alignment") {
  for_all_sizes([](std::size_t n, std::size_t shift) {
    check_cast<float, float>(n, shift, 0);
    check_cast<float, Bf16>(n, shift, shift);
    check_cast<float, F16>(n, 0, shift);
    check_cast<Bf16, float>(n, shift, 1);
    check_cast<Bf16, Bf16>(n, shift, shift);
    check_cast<Bf16, F16>(n, shift, 0);
    check_cast<F16, float>(n, 0, shift);
    check_cast<F16, Bf16>(n, shift, 2);
    check_cast<F16, F16>(n, shift, 5);
    check_cast<double, double>(n, shift, 0);
  });
}

TEST_CASE("cast: in place it scales, and infinite and NaN values stay what they are") {
  const OwnStream stream;
  auto values = random_values<float>(4097, 2);
  values[5] = INFINITY;
  values[4096] = NAN;
  const DeviceArray<float> array(stream, values, 1);
  cuda::cast(array.view(), array.view(), 0.25, stream);
  const auto result = array.read();
  CHECK(result[5] == INFINITY);
  CHECK(std::isnan(result[4096]));
  for (float& value : values) value *= 0.25f;
  values[4096] = result[4096];
  CHECK(same_bits(result, values));
}

TEST_CASE("Flattener: lays scattered tensors one behind the other, and puts them back") {
  const OwnStream stream;
  const std::vector<std::size_t> sizes = {1, 0, 7, 70001, 256, 255, 65536};
  std::vector<std::vector<float>> values;
  std::vector<DeviceArray<float>> arrays;
  std::vector<TensorView> views;
  std::vector<float> all;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    values.push_back(random_values<float>(sizes[i], static_cast<unsigned>(20 + i)));
    arrays.emplace_back(stream, values[i], i % 4);
    views.push_back(arrays[i].view());
    all.insert(all.end(), values[i].begin(), values[i].end());
  }
  const cuda::Flattener flattener(views);
  REQUIRE(flattener.numel() == all.size());

  const DeviceArray<float> flat(stream, poison<float>(all.size()), 1);
  flattener.flatten(flat.view(), 1.0, stream);
  CHECK(same_bits(flat.read(), all));

  const DeviceArray<Bf16> narrow(stream, poison<Bf16>(all.size()));
  flattener.flatten(narrow.view(), 0.5, stream);
  std::vector<Bf16> expected(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) expected[i] = round_to<Bf16>(all[i] * 0.5f);
  CHECK(same_bits(narrow.read(), expected));

  flattener.unflatten(narrow.view(), 2.0, stream);
  std::size_t at = 0;
  for (const auto& array : arrays)
    for (const float value : array.read()) CHECK_UNARY(value == to_f32(expected[at++]) * 2);
}

TEST_CASE("GradientNorm: norm and clip factor of one range, at any alignment") {
  for_all_sizes([](std::size_t n, std::size_t shift) {
    check_norm<float>(n, shift);
    check_norm<Bf16>(n, shift);
    check_norm<F16>(n, shift);
  });
}

TEST_CASE("GradientNorm: several ranges count as one gradient") {
  const OwnStream stream;
  const DeviceArray<float> a(stream, std::vector<float>(9, 1.0f));
  const DeviceArray<Bf16> b(stream, std::vector<Bf16>(4, make<Bf16>(2.0)));
  CHECK(norm_of(stream, {a.view(), b.view()}, 1, 100).norm == 5.0);
}

TEST_CASE("GradientNorm: finds one element that is infinite or NaN wherever it is") {
  const OwnStream stream;
  for (const double bad : {double{INFINITY}, -double{INFINITY}, double{NAN}})
    for (const std::size_t where : {0, 1, 2047, 4096}) {
      auto values = random_values<Bf16>(4097, 11);
      values[where] = make<Bf16>(bad);
      const DeviceArray<Bf16> gradient(stream, values, 1);
      const Result result = norm_of(stream, {gradient.view()}, 1, 1);
      CHECK(result.found_inf == 1);
      CHECK(result.factor == 0);
      CHECK(result.steps == 0);
    }
}

TEST_CASE("GradientNorm: gives the same bits each time, and counts only finite gradients") {
  const OwnStream stream;
  auto values = random_values<float>(100003, 12);
  const DeviceArray<float> good(stream, values);
  values[77] = NAN;
  const DeviceArray<float> bad(stream, values);
  cuda::GradientNorm norm(0, 10);
  const auto computed = [&](const DeviceArray<float>& gradient) {
    const TensorView view = gradient.view();
    norm.compute({&view, 1}, 1, 1, stream);
    return norm.read(stream, Deadline::after(std::chrono::seconds(60)));
  };
  const auto first = computed(good);
  CHECK(computed(bad).steps == 11);
  const auto second = computed(good);
  CHECK(std::memcmp(&first.norm, &second.norm, sizeof(float)) == 0);
  CHECK(first.steps == 11);
  CHECK(second.steps == 12);
}

TEST_CASE("sgd_step: has the bits of the element function, for all types and alignments") {
  for_all_sizes([](std::size_t n, std::size_t shift) {
    check_sgd<float, Bf16>(n, shift);
    check_sgd<float, F16>(n, shift);
    check_sgd<Bf16, Bf16>(n, shift);
    check_sgd<F16, F16>(n, shift);
  });
}

TEST_CASE("sgd_step: without momentum and copy, and in f64") {
  const OwnStream stream;
  auto value = random_values<double>(255, 13);
  auto momentum = std::vector<double>(255, 0.0);
  const auto gradient = random_values<double>(255, 14);
  const DeviceArray<double> device_value(stream, value, 1);
  const DeviceArray<double> device_gradient(stream, gradient);
  cuda::sgd_step({device_value.view(), device_gradient.view()}, {.lr = 0.1}, stream);
  for (std::size_t i = 0; i < value.size(); ++i)
    sgd_element(value[i], momentum[i], gradient[i], 0.1, 0.0);
  CHECK(same_bits(device_value.read(), value));
}

TEST_CASE("adamw_step: has the bits of the element function, for all types and alignments") {
  for_all_sizes([](std::size_t n, std::size_t shift) {
    check_adamw<float, Bf16>(n, shift);
    check_adamw<float, F16>(n, shift);
    check_adamw<Bf16, Bf16>(n, shift);
    check_adamw<F16, F16>(n, shift);
    check_adamw<F16, Bf16>(n, shift);
  });
}

TEST_CASE("adamw_step: unscales, clips and counts steps by what the norm says, without the host") {
  const OwnStream stream;
  AdamWCase<Bf16> expected(4097);
  const AdamWOnGpu<Bf16, Bf16> gpu(stream, expected, 1);
  cuda::GradientNorm norm(0, 4);
  const TensorView gradient = gpu.gradient.view();
  norm.compute({&gradient, 1}, 1.0 / 8, 0.5, stream);
  cuda::adamw_step(gpu.tensors(norm.result()), {}, 1, stream);
  const auto result = norm.read(stream, Deadline::after(std::chrono::seconds(60)));
  CHECK(result.factor < 1.0f / 8);
  expected.step({}, 5, result.factor);
  CHECK(same_bits(gpu.value.read(), expected.value));
  CHECK(same_bits(gpu.second.read(), expected.second));
}

TEST_CASE("Steps: are left out as a whole when the gradient is not finite") {
  const OwnStream stream;
  AdamWCase<F16> state(257);
  state.gradient[100] = make<F16>(INFINITY);
  const AdamWOnGpu<F16, F16> gpu(stream, state, 0);
  cuda::GradientNorm norm;
  const TensorView gradient = gpu.gradient.view();
  norm.compute({&gradient, 1}, 1, 1, stream);
  cuda::adamw_step(gpu.tensors(norm.result()), {}, 1, stream);
  cuda::sgd_step({gpu.value.view(), gradient, gpu.first.view(), {}, norm.result()},
                 {.lr = 1, .momentum = 0.5}, stream);
  CHECK(same_bits(gpu.value.read(), state.value));
  CHECK(same_bits(gpu.first.read(), state.first));
  CHECK(same_bits(gpu.second.read(), state.second));
}

TEST_CASE("Steps: are left out while there is no norm yet") {
  const OwnStream stream;
  AdamWCase<F16> state(257);
  const AdamWOnGpu<F16, F16> gpu(stream, state, 0);
  const cuda::GradientNorm norm;
  cuda::adamw_step(gpu.tensors(norm.result()), {}, 1, stream);
  CHECK(same_bits(gpu.value.read(), state.value));
}

TEST_CASE("fill_zero: sets a range to zero and nothing beside it") {
  const OwnStream stream;
  const DeviceArray<Bf16> array(stream, random_values<Bf16>(77, 15), 3);
  cuda::fill_zero(array.view(), stream);
  CHECK(same_bits(array.read(), std::vector<Bf16>(77, Bf16{0})));
}

TEST_CASE("allocate: gives memory that is zero") {
  const OwnStream stream;
  const auto memory = cuda::allocate(4096);
  const DeviceArray<float> out(stream, poison<float>(1024));
  cuda::cast(out.view(), {memory.get(), 1024, DType::f32, {DeviceType::cuda, 0}}, 1, stream);
  CHECK(same_bits(out.read(), std::vector<float>(1024, 0.0f)));
}

TEST_CASE("Kernels: refuse tensors that do not fit, and say what does not") {
  const Stream stream{};
  const auto refused = [](auto call, const char* text) {
    CHECK_THROWS_WITH_AS(call(), text, UsageError);
  };
  refused([&] { cuda::cast(on_gpu(5), on_gpu(6), 1, stream); },
          "[cuda] cast: out has 5 f32 on GPU 0; but in has 6 f32 on GPU 0");
  refused([&] { cuda::cast(on_gpu(5, DType::f32, 1), on_gpu(5), 1, stream); },
          "[cuda] cast: out has 5 f32 on GPU 1; but in has 5 f32 on GPU 0");
  refused([&] { cuda::cast(on_gpu(5, DType::i32), on_gpu(5), 1, stream); },
          "[cuda] cast: out has 5 i32 on GPU 0; but in has 5 f32 on GPU 0; f32, f16 and bf16 "
          "convert to each other, f64 to itself");
  refused([&] { cuda::cast(on_gpu(5, DType::bf16), on_gpu(5), 1, stream); },
          "[cuda] cast: out has 5 bf16 on GPU 0; it overlaps in, and is not the same");
  std::vector<float> host(5);
  refused([&] { cuda::cast(on_gpu(5), view(host), 1, stream); },
          "[cuda] cast: in has 5 f32 in CPU memory; it must be on a GPU");
  refused(
      [&] {
        cuda::sgd_step({on_gpu(5), on_gpu(5)}, {.lr = 0.1, .momentum = 0.9}, stream);
      },
      "[cuda] sgd_step: momentum is empty; but options.momentum is 0.9");
  refused(
      [&] {
        cuda::sgd_step({on_gpu(5), on_gpu(5)}, {.lr = -1}, stream);
      },
      "[cuda] sgd_step: lr -1 must be 0 or more");
  refused(
      [&] {
        cuda::adamw_step({on_gpu(5), on_gpu(5), on_gpu(5), on_gpu(4)}, {}, 1, stream);
      },
      "[cuda] adamw_step: second_moment has 4 f32 on GPU 0; but value has 5 f32 on GPU 0");
  refused(
      [&] {
        cuda::adamw_step({on_gpu(5), on_gpu(5), on_gpu(5), on_gpu(5)}, {}, 0, stream);
      },
      "[cuda] adamw_step: step 0 must be 1 or more");
  refused(
      [&] {
        cuda::sgd_step({on_gpu(5), on_gpu(5)}, {.lr = 0.1}, stream);
      },
      "[cuda] sgd_step: value has 5 f32 on GPU 0; it overlaps gradient");
  refused([&] { cuda::fill_zero(on_gpu(std::size_t{1} << 62), stream); },
          "[cuda] fill_zero: target has 4611686018427387904 f32 on GPU 0; that is too many");
  refused(
      [&] {
        const TensorView gradient = on_gpu(5);
        cuda::GradientNorm().compute(std::span(&gradient, 1), 1e300, 1, stream);
      },
      "[cuda] GradientNorm: unscale 1e+300 must be more than 0 and in the range of f32");
  refused([&] { cuda::Flattener({}); }, "[cuda] Flattener: no tensors were given");
}

TEST_SUITE_END();
