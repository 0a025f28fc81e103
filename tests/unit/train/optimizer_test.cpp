// SPDX-License-Identifier: MIT
// Sgd: PyTorch's arithmetic, on f32 and f64.
#include <ddprun/error.h>
#include <ddprun/optimizer.h>

#include <array>
#include <vector>

#include <doctest/doctest.h>

using namespace ddprun;

namespace {

template <class T>
Parameter parameter(std::vector<T>& value, std::vector<T>& grad) {
  return {"w", {static_cast<std::int64_t>(value.size())}, view(value), view(grad)};
}

}  // namespace

TEST_SUITE("train") {
  TEST_CASE_TEMPLATE("Sgd: momentum gathers gradients from the first step on", T, float, double) {
    std::vector<T> value = {1, -2, 0};
    std::vector<T> grad = {T(0.5), 1, 0};
    std::array parameters = {parameter(value, grad)};
    Sgd sgd(parameters, {.lr = 0.5, .momentum = 0.5});
    sgd.step();  // buf = grad
    CHECK(value == std::vector<T>{T(0.75), T(-2.5), 0});
    sgd.step();  // buf = 0.5 * buf + grad
    CHECK(value == std::vector<T>{T(0.375), T(-3.25), 0});
    grad = {0, 0, 8};
    sgd.step();
    CHECK(value == std::vector<T>{T(0.1875), T(-3.625), -4});
  }

  TEST_CASE("Sgd: without momentum every step is lr times the gradient") {
    std::vector<float> value(1001, 1.0F);
    std::vector<float> grad(1001, 2.0F);
    std::array parameters = {parameter(value, grad)};
    Sgd sgd(parameters, {.lr = 0.25});
    sgd.step();
    sgd.step();
    CHECK(value == std::vector<float>(1001, 0.0F));
  }

  TEST_CASE("Sgd: lr can be changed, and momentum is kept; gradients are zeroed on demand") {
    std::vector<double> value = {0};
    std::vector<double> grad = {1};
    std::array parameters = {parameter(value, grad)};
    Sgd sgd(parameters, {.lr = 1, .momentum = 0.5});
    sgd.step();
    CHECK(value[0] == -1);
    sgd.set_lr(2);
    sgd.step();  // buf = 1.5
    CHECK(value[0] == -4);
    sgd.zero_grad();
    CHECK(grad[0] == 0);
    CHECK_THROWS_WITH_AS(sgd.set_lr(-1), doctest::Contains("lr -1"), UsageError);
    CHECK_THROWS_WITH_AS(Sgd(parameters, {.lr = 1, .momentum = -1}),
                         doctest::Contains("momentum -1"), UsageError);
  }

  TEST_CASE("Sgd: what it cannot update is named") {
    std::vector<std::int64_t> value(2);
    std::vector<std::int64_t> grad(2);
    std::array integers = {parameter(value, grad)};
    CHECK_THROWS_WITH_AS(Sgd(integers, {}), doctest::Contains("'w' has dtype i64"), UsageError);
    std::vector<float> floats(2);
    std::array without_gradient = {Parameter{"bias", {2}, view(floats), {}}};
    Sgd sgd(without_gradient, {});
    CHECK_THROWS_WITH_AS(sgd.step(), doctest::Contains("'bias'"), UsageError);
  }
}
