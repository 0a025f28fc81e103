// SPDX-License-Identifier: MIT
// A 6-8-3 network trained on 1 to 4 ranks, against what PyTorch's DistributedDataParallel made of
// it.
#include <ddprun/ddp.h>
#include <ddprun/hash_store.h>
#include <ddprun/optimizer.h>

#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "support/run_ranks.h"
#include "support/vectors.h"

using namespace ddprun;
using Floats = std::vector<float>;

namespace {

constexpr std::size_t kIn = 6;
constexpr std::size_t kHidden = 8;
constexpr std::size_t kOut = 3;

Floats flatten(const nlohmann::json& array) {
  Floats result;
  for (const auto& element : array) {
    if (!element.is_array()) {
      result.push_back(static_cast<float>(element.get<double>()));
      continue;
    }
    const Floats inner = flatten(element);
    result.insert(result.end(), inner.begin(), inner.end());
  }
  return result;
}

struct Network {
  Floats fc1_weight, fc1_bias, fc2_weight, fc2_bias;
  std::vector<Parameter> parameters;

  explicit Network(const nlohmann::json& init)
      : fc1_weight(flatten(init["fc1.weight"])),
        fc1_bias(flatten(init["fc1.bias"])),
        fc2_weight(flatten(init["fc2.weight"])),
        fc2_bias(flatten(init["fc2.bias"])),
        parameters{{"fc1.weight", {8, 6}, view(fc1_weight), {}},
                   {"fc1.bias", {8}, view(fc1_bias), {}},
                   {"fc2.weight", {3, 8}, view(fc2_weight), {}},
                   {"fc2.bias", {3}, view(fc2_bias), {}}} {}

  float* grad(std::size_t i) { return static_cast<float*>(parameters[i].grad.data); }

  void zero_grad() {
    for (const Parameter& p : parameters)
      std::fill_n(static_cast<float*>(p.grad.data), p.grad.numel, 0.0F);
  }

  // Adds one row's part of the gradient of a mean over `count` numbers; returns its part of it.
  double backward(const float* x, const float* y, float count) {
    float hidden[kHidden];
    float hidden_grad[kHidden] = {};
    double loss = 0;
    for (std::size_t h = 0; h < kHidden; ++h) {
      float sum = fc1_bias[h];
      for (std::size_t k = 0; k < kIn; ++k) sum += fc1_weight[h * kIn + k] * x[k];
      hidden[h] = std::tanh(sum);
    }
    for (std::size_t o = 0; o < kOut; ++o) {
      float sum = fc2_bias[o];
      for (std::size_t h = 0; h < kHidden; ++h) sum += fc2_weight[o * kHidden + h] * hidden[h];
      const float error = sum - y[o];
      loss += static_cast<double>(error * error / count);
      const float slope = 2 * error / count;
      grad(3)[o] += slope;
      for (std::size_t h = 0; h < kHidden; ++h) {
        grad(2)[o * kHidden + h] += slope * hidden[h];
        hidden_grad[h] += slope * fc2_weight[o * kHidden + h];
      }
    }
    for (std::size_t h = 0; h < kHidden; ++h) {
      const float slope = hidden_grad[h] * (1 - hidden[h] * hidden[h]);
      grad(1)[h] += slope;
      for (std::size_t k = 0; k < kIn; ++k) grad(0)[h * kIn + k] += slope * x[k];
    }
    return loss;
  }
};

bool close(double a, double b) { return std::abs(a - b) <= 1e-6 + 1e-5 * std::abs(b); }

void train_as_recorded(const nlohmann::json& trace, const nlohmann::json& run, int rank, int world,
                       const std::shared_ptr<Store>& store) {
  ProcessGroup group(store, rank, world);
  Network network(trace["init"]);
  for (Floats* values : {&network.fc1_weight, &network.fc2_bias})
    for (float& v : *values) v += static_cast<float>(rank);  // rank 0's values win
  DistributedDataParallel ddp(group, network.parameters);
  Sgd sgd(network.parameters, {.lr = 0.1, .momentum = 0.9});
  const Floats x = flatten(trace["x"]);
  const Floats y = flatten(trace["y"]);
  const std::size_t rows = trace["rows"];
  const std::size_t batch = trace["global_batch"];
  const std::size_t own = batch / static_cast<std::size_t>(world);
  for (std::size_t step = 0; step < trace["steps"]; ++step) {
    network.zero_grad();
    double loss = 0;
    for (std::size_t k = 0; k < own; ++k) {
      const std::size_t row = (batch * step + static_cast<std::size_t>(rank) * own + k) % rows;
      loss += network.backward(&x[row * kIn], &y[row * kOut], static_cast<float>(own * kOut));
    }
    for (std::size_t i = 4; i-- > 0;) ddp.mark_ready(i);
    ddp.synchronize();
    sgd.step();
    CHECK(close(group.mean(loss), run["mean_loss"][step]));
  }
  for (const Parameter& p : network.parameters) {
    const Floats expected = flatten(run["final"][p.name]);
    const auto* const values = static_cast<const float*>(p.value.data);
    for (std::size_t k = 0; k < expected.size(); ++k)
      CHECK(close(static_cast<double>(values[k]), static_cast<double>(expected[k])));
  }
}

}  // namespace

TEST_SUITE("ddp") {
  TEST_CASE("DDP: losses and weights of a training are those of PyTorch on 1 to 4 ranks") {
    const auto trace = test::read_vectors("ddp_sgd_trace.json");
    REQUIRE(trace["runs"].size() == 4);
    for (const auto& run : trace["runs"]) {
      const int world = run["world"];
      CAPTURE(world);
      const auto store = make_hash_store();
      test::run_ranks(world, [&](int rank) { train_as_recorded(trace, run, rank, world, store); });
    }
  }
}
