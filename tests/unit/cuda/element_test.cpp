// SPDX-License-Identifier: MIT
// The element functions of the kernels, on the CPU: 16-bit conversions over all values, optimizer
// steps against the formulas in f64.
#include "cuda/element.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

using namespace ddprun;

namespace {

/// Value of a 16-bit float by its definition.
double defined_value(std::uint32_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = static_cast<int>(bits) & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000u) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1)
    return mantissa != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

template <class T>
void check_round_trip(int exponent_bits, int mantissa_bits) {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const T value{static_cast<std::uint16_t>(bits)};
    const float wide = to_f32(value);
    const double expected = defined_value(bits, exponent_bits, mantissa_bits);
    const T back = round_to<T>(wide);
    if (std::isnan(expected))
      wrong += std::isnan(wide) && std::isnan(to_f32(back)) ? 0 : 1;
    else
      wrong += wide == expected && back.bits == bits ? 0 : 1;
  }
  CHECK(wrong == 0);
}

/// Between every two neighbours: the middle goes to the even one, anything beside it to the nearer.
/// `infinity` has the bits of infinity, which is reached from the middle of the largest number and
/// what would be the next.
template <class T>
void check_rounding(std::uint16_t infinity) {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < infinity; ++bits) {
    const T low{static_cast<std::uint16_t>(bits)};
    const T high{static_cast<std::uint16_t>(bits + 1)};
    const T below{static_cast<std::uint16_t>(bits - 1)};
    const double next =
        bits + 1u < infinity ? double{to_f32(high)} : 2.0 * to_f32(low) - to_f32(below);
    const auto middle = static_cast<float>((to_f32(low) + next) / 2);
    const T even = (bits & 1u) == 0 ? low : high;
    wrong += round_to<T>(middle).bits == even.bits ? 0 : 1;
    wrong += round_to<T>(std::nextafter(middle, 0.0f)).bits == low.bits ? 0 : 1;
    wrong += round_to<T>(std::nextafter(middle, INFINITY)).bits == high.bits ? 0 : 1;
    wrong += round_to<T>(-middle).bits == (even.bits | 0x8000u) ? 0 : 1;
  }
  CHECK(wrong == 0);
}

/// As PyTorch's documentation has it, in f64.
struct ReferenceAdamW {
  double value, first = 0, second = 0;
  void step(double gradient, double lr, double beta1, double beta2, double eps, double decay,
            int number) {
    value -= lr * decay * value;
    first = beta1 * first + (1 - beta1) * gradient;
    second = beta2 * second + (1 - beta2) * gradient * gradient;
    const double first_hat = first / (1 - std::pow(beta1, number));
    const double second_hat = second / (1 - std::pow(beta2, number));
    value -= lr * first_hat / (std::sqrt(second_hat) + eps);
  }
};

}  // namespace

TEST_SUITE_BEGIN("cuda");

TEST_CASE("Bf16: every value goes to f32 and back unchanged, and NaN stays NaN") {
  check_round_trip<Bf16>(8, 7);
}

TEST_CASE("F16: every value goes to f32 and back unchanged, and NaN stays NaN") {
  check_round_trip<F16>(5, 10);
}

TEST_CASE("Bf16: rounds to nearest, ties to even, up to infinity") { check_rounding<Bf16>(0x7f80); }

TEST_CASE("F16: rounds to nearest, ties to even, down to subnormals and up to infinity") {
  check_rounding<F16>(0x7c00);
}

TEST_CASE("F16: what is far outside its range becomes zero or infinite, with the sign") {
  CHECK(round_to<F16>(1e-30f).bits == 0);
  CHECK(round_to<F16>(-1e-30f).bits == 0x8000);
  CHECK(round_to<F16>(3e38f).bits == 0x7c00);
  CHECK(round_to<F16>(-INFINITY).bits == 0xfc00);
}

TEST_CASE("sgd_element: follows the formula, with a zeroed buffer as the first") {
  float value = 0.75f;
  float buffer = 0;
  double reference = 0.75;
  double reference_buffer = 0;
  for (int step = 0; step < 20; ++step) {
    const float gradient = 0.1f * static_cast<float>(step - 7);
    sgd_element(value, buffer, gradient, 0.01f, 0.9f);
    reference_buffer = step == 0 ? double{gradient} : 0.9 * reference_buffer + gradient;
    reference -= 0.01 * reference_buffer;
    CHECK(value == doctest::Approx(reference).epsilon(1e-6));
  }
}

TEST_CASE("adamw_element: follows the formula over many steps") {
  for (const double scale : {1e-4, 1.0, 1e3}) {
    ReferenceAdamW reference{.value = 0.5};
    float value = 0.5f;
    float first = 0;
    float second = 0;
    for (int step = 1; step <= 200; ++step) {
      const auto gradient = static_cast<float>(scale * std::sin(0.3 * step));
      const AdamWFactors factors = adamw_factors(1e-2, 0.9, 0.999, 1e-8, 0.1, step);
      adamw_element(value, first, second, gradient, factors);
      reference.step(gradient, 1e-2, 0.9, 0.999, 1e-8, 0.1, step);
      CHECK(value == doctest::Approx(reference.value).epsilon(2e-5));
    }
  }
}

TEST_CASE("adamw_element: eps stands outside the root, and decay does not pass the moments") {
  float value = 2;
  float first = 0;
  float second = 0;
  adamw_element(value, first, second, 1e-3f, adamw_factors(0.5, 0.9, 0.999, 1e-3, 0.1, 1));
  CHECK(first == doctest::Approx(1e-4));
  CHECK(value == doctest::Approx(2 * 0.95 - 0.5 * 1e-3 / (1e-3 + 1e-3)));
}

TEST_CASE("clip_factor: leaves a short gradient, shortens a long one to max_norm") {
  CHECK(clip_factor(0.5, 1.0, 2.0) == 0.5);
  CHECK(clip_factor(0.5, 4.0, 2.0) == doctest::Approx(0.25));
  CHECK(clip_factor(1.0, 0.0, 1.0) == 1.0);
  CHECK(clip_factor(0.25, 1e9, INFINITY) == 0.25);
}

TEST_SUITE_END();
