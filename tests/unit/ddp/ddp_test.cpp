// SPDX-License-Identifier: MIT
// DistributedDataParallel with ranks as threads: averages, order, agreement, and every way to get a
// step wrong.
#include <ddprun/ddp.h>
#include <ddprun/error.h>
#include <ddprun/hash_store.h>

#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/core.h>

#include "support/run_ranks.h"

using namespace ddprun;
using test::errors_of_ranks;
using test::run_ranks;

namespace {

using Shapes = std::vector<std::vector<std::int64_t>>;

// A model without a network: the values of its parameters, and gradients set by formula.
class Model {
 public:
  explicit Model(const Shapes& shapes, double first_value = 0) {
    for (const auto& shape : shapes) {
      const auto numel =
          std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
      values_.emplace_back(static_cast<std::size_t>(numel));
      for (double& v : values_.back()) v = first_value++;
      parameters.push_back(
          {fmt::format("p{}", parameters.size()), shape, view(values_.back()), {}});
    }
  }
  // Whole numbers, so that means over up to 4 ranks have no rounding that matters.
  static double gradient(std::size_t i, std::size_t k, int rank, int step) {
    return 12.0 * static_cast<double>(i + k % 7) + 24.0 * rank * (step + 1);
  }
  void backward(std::size_t i, int rank, int step) {
    auto* const grad = static_cast<double*>(parameters[i].grad.data);
    for (std::size_t k = 0; k < parameters[i].grad.numel; ++k) grad[k] = gradient(i, k, rank, step);
  }
  bool has_mean(int world, int step) const {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const auto* const grad = static_cast<const double*>(parameters[i].grad.data);
      for (std::size_t k = 0; k < parameters[i].grad.numel; ++k)
        if (grad[k] != gradient(i, k, 0, step) + 12.0 * (world - 1) * (step + 1)) return false;
    }
    return true;
  }

  std::vector<Parameter> parameters;

 private:
  std::vector<std::vector<double>> values_;
};

// Parameters "p0", "p1", ... for constructions that fail before they touch a value.
std::vector<Parameter> described(const Shapes& shapes) {
  static std::array<double, 8> memory;
  std::vector<Parameter> parameters = Model(shapes).parameters;
  for (Parameter& p : parameters) p.value.data = memory.data();
  return parameters;
}

Shapes nine_shapes() { return {{16, 8}, {16}, {0}, {3}, {40, 5}, {1}, {2, 2, 2}, {7}, {64}}; }

// One step in which rank r marks its parameters rotated by r * shift.
void step(Model& model, DistributedDataParallel& ddp, int rank, int number, std::size_t shift) {
  const std::size_t n = model.parameters.size();
  for (std::size_t k = 0; k < n; ++k) {
    const std::size_t i = (n - 1 - k + static_cast<std::size_t>(rank) * shift) % n;
    model.backward(i, rank, number);
    ddp.mark_ready(i);
  }
  ddp.synchronize();
}

std::string first_line_of(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) CHECK(error == errors[0]);
  return errors[0];
}

// What every rank's constructor throws when rank r has models[r].
std::vector<std::string> construct(std::vector<std::vector<Parameter>> models,
                                   std::vector<DdpOptions> options = {}) {
  const auto store = make_hash_store();
  options.resize(models.size());
  const int size = static_cast<int>(models.size());
  return errors_of_ranks(size, [&](int rank) {
    ProcessGroup group(store, rank, size);
    const auto r = static_cast<std::size_t>(rank);
    const DistributedDataParallel ddp(group, models[r], options[r]);
  });
}

constexpr std::string_view kAdvice = "; build the same model with the same options on every rank";

}  // namespace

TEST_SUITE("ddp") {
  TEST_CASE("DDP: gradients are the mean over ranks in every step") {
    for (int world = 1; world <= 4; ++world) {
      for (const std::size_t bucket_bytes :
           {std::size_t{1}, std::size_t{200}, std::size_t{1} << 20}) {
        CAPTURE(world);
        CAPTURE(bucket_bytes);
        const auto store = make_hash_store();
        run_ranks(world, [&](int rank) {
          ProcessGroup group(store, rank, world);
          Model model(nine_shapes());
          DistributedDataParallel ddp(group, model.parameters, {.bucket_bytes = bucket_bytes});
          if (bucket_bytes == 1) CHECK(ddp.bucket_count() == 8);  // {0} never fills one
          if (bucket_bytes == 1 << 20) CHECK(ddp.bucket_count() == 1);
          for (int s = 0; s < 5; ++s) {
            step(model, ddp, rank, s, 0);
            CHECK(model.has_mean(world, s));
          }
        });
      }
    }
  }

  TEST_CASE("DDP: ranks may finish gradients in different orders") {
    const auto store = make_hash_store();
    run_ranks(4, [&](int rank) {
      ProcessGroup group(store, rank, 4);
      Model model(nine_shapes());
      DistributedDataParallel ddp(group, model.parameters, {.bucket_bytes = 1});
      for (int s = 0; s < 20; ++s) {
        step(model, ddp, rank, s, 2);
        CHECK(model.has_mean(4, s));
      }
    });
  }

  TEST_CASE("DDP: exactly the parameters' bytes are reduced") {
    const auto store = make_hash_store();
    run_ranks(2, [&](int rank) {
      ProcessGroup group(store, rank, 2);
      Model model(nine_shapes());
      std::size_t bytes = 0;
      for (const Parameter& p : model.parameters) bytes += p.value.bytes();
      DistributedDataParallel ddp(group, model.parameters, {.bucket_bytes = 100});
      const auto before = group.stats().all_reduce;
      for (int s = 0; s < 3; ++s) step(model, ddp, rank, s, 0);
      const auto after = group.stats().all_reduce;
      CHECK(after.bytes - before.bytes == static_cast<std::int64_t>(3 * bytes));
      CHECK(after.operations - before.operations ==
            static_cast<std::int64_t>(3 * ddp.bucket_count()));
    });
  }

  TEST_CASE("DDP: a bucket is reduced while backward goes on") {
    const auto store = make_hash_store();
    run_ranks(2, [&](int rank) {
      ProcessGroup group(store, rank, 2);
      Model model(Shapes{{4}, {4}, {4}});
      DistributedDataParallel ddp(group, model.parameters, {.bucket_bytes = 1});
      const auto before = group.stats().all_reduce;
      const auto started = [&] { return group.stats().all_reduce.operations - before.operations; };
      const auto mark = [&](std::size_t i) {
        model.backward(i, rank, 0);
        ddp.mark_ready(i);
      };
      mark(1);  // the second bucket has to wait for the first
      CHECK(started() == 0);
      mark(2);
      CHECK(started() == 2);
      const auto deadline = Deadline::after(std::chrono::seconds(20));
      while (group.stats().all_reduce.time == before.time && !deadline.expired())
        std::this_thread::yield();
      CHECK(group.stats().all_reduce.time > before.time);  // done, and nobody has waited for it
      mark(0);
      ddp.synchronize();
      CHECK(started() == 3);
      CHECK(model.has_mean(2, 0));
    });
  }

  TEST_CASE("DDP: DdpOptions::order decides which bucket is first") {
    const auto store = make_hash_store();
    run_ranks(2, [&](int rank) {
      ProcessGroup group(store, rank, 2);
      Model model(Shapes{{4}, {4}, {4}});
      DistributedDataParallel ddp(group, model.parameters, {.bucket_bytes = 1, .order = {1, 2, 0}});
      const auto before = group.stats().all_reduce.operations;
      const auto started = [&] { return group.stats().all_reduce.operations - before; };
      ddp.mark_ready(1);
      CHECK(started() == 1);
      ddp.mark_ready(0);
      CHECK(started() == 1);
      ddp.mark_ready(2);
      CHECK(started() == 2);
      ddp.synchronize();
      CHECK(started() == 3);
    });
  }

  TEST_CASE("DDP: every rank begins with the values of rank 0 and zeroed gradients") {
    const auto store = make_hash_store();
    run_ranks(3, [&](int rank) {
      ProcessGroup group(store, rank, 3);
      Model model(nine_shapes(), rank * 1000);
      const Model expected(nine_shapes(), 0);
      DistributedDataParallel ddp(group, model.parameters, {.bucket_bytes = 100});
      for (std::size_t i = 0; i < model.parameters.size(); ++i) {
        const Parameter& p = model.parameters[i];
        const auto as_vector = [](TensorView t) {
          const auto* const data = static_cast<const double*>(t.data);
          return std::vector<double>(data, data + t.numel);
        };
        CHECK(as_vector(p.value) == as_vector(expected.parameters[i].value));
        CHECK(as_vector(p.grad) == std::vector<double>(p.value.numel, 0.0));
        CHECK(p.grad.data == ddp.gradient(i).data);
      }
      CHECK_THROWS_WITH_AS(ddp.gradient(9), doctest::Contains("no parameter 9"), UsageError);
    });
  }

  TEST_CASE("DDP: f32 and f64 parameters go in different buckets") {
    const auto store = make_hash_store();
    run_ranks(2, [&](int rank) {
      ProcessGroup group(store, rank, 2);
      std::vector<float> a(3, 1.0F);
      std::vector<double> b(2, 1.0);
      std::vector<Parameter> parameters = {{"a", {3}, view(a), {}}, {"b", {2}, view(b), {}}};
      DistributedDataParallel ddp(group, parameters);
      CHECK(ddp.bucket_count() == 2);
      static_cast<float*>(parameters[0].grad.data)[2] = static_cast<float>(rank);
      static_cast<double*>(parameters[1].grad.data)[1] = rank;
      ddp.mark_ready(0);
      ddp.mark_ready(1);
      ddp.synchronize();
      CHECK(static_cast<float*>(parameters[0].grad.data)[2] == 0.5F);
      CHECK(static_cast<double*>(parameters[1].grad.data)[1] == 0.5);
    });
  }

  TEST_CASE("DDP: a parameter too many is named on all ranks") {
    CHECK(first_line_of(construct({described({{2}}), described({{2}, {3}}), described({{2}})})) ==
          "[ddp] construction: the ranks differ: rank 1 has parameter 1: 'p1' f64 [3], ranks 0, 2 "
          "have 1 parameters in all" +
              std::string(kAdvice));
  }

  TEST_CASE("DDP: a transposed shape is named on all ranks") {
    CHECK(first_line_of(construct(
              {described({{2}, {2, 3}}), described({{2}, {2, 3}}), described({{2}, {3, 2}})})) ==
          "[ddp] construction: the ranks differ: rank 2 has parameter 1: 'p1' f64 [3, 2], ranks 0, "
          "1 have parameter 1: 'p1' f64 [2, 3]" +
              std::string(kAdvice));
  }

  TEST_CASE("DDP: swapped parameters of equal size are named on all ranks") {
    auto swapped = described({{4}, {4}});
    std::swap(swapped[0], swapped[1]);
    CHECK(first_line_of(construct({described({{4}, {4}}), swapped})) ==
          "[ddp] construction: the ranks differ: rank 1 has parameter 0: 'p1' f64 [4], rank 0 has "
          "parameter 0: 'p0' f64 [4]" +
              std::string(kAdvice));
  }

  TEST_CASE("DDP: another dtype is named on all ranks") {
    std::vector<float> value(4);
    const std::vector<Parameter> f32 = {{"p0", {4}, view(value), {}}};
    CHECK(first_line_of(construct({f32, described({{4}}), described({{4}})})) ==
          "[ddp] construction: the ranks differ: rank 0 has parameter 0: 'p0' f32 [4], ranks 1, 2 "
          "have parameter 0: 'p0' f64 [4]" +
              std::string(kAdvice));
  }

  TEST_CASE("DDP: no parameters at all are refused, on one rank or on all") {
    CHECK(first_line_of(construct({{}, described({{4}}), described({{4}})})) ==
          "[ddp] construction: the ranks differ: rank 0 has 0 parameters in all, ranks 1, 2 have "
          "parameter 0: 'p0' f64 [4]" +
              std::string(kAdvice));
    CHECK(first_line_of(construct({{}, {}})) ==
          "[ddp] construction: there are no parameters to average the gradients of");
  }

  TEST_CASE("DDP: different options are named on all ranks") {
    const auto model = described({{4}, {4}});
    CHECK(first_line_of(construct({model, model}, {{}, {.bucket_bytes = 77}}))
              .find("rank 1 has bucket_bytes 77") != std::string::npos);
    CHECK(first_line_of(construct({model, model}, {{.order = {0, 1}}, {.order = {1, 0}}}))
              .find("rank 1 has order[0] = 1, rank 0 has order[0] = 0") != std::string::npos);
    CHECK(first_line_of(construct({model, model}, {{.order = {0, 0}}, {.order = {0, 0}}}))
              .find("must name each of the 2 parameters once") != std::string::npos);
  }

  TEST_CASE("DDP: a parameter that contradicts itself is named and the other ranks fail with it") {
    auto wrong = described({{4}, {4}});
    wrong[1].shape = {5};
    const auto errors = construct({described({{4}, {4}}), wrong});
    CHECK(errors[1] ==
          "[ddp] construction: parameter 1 'p1' f64 [5]: its value has 4 elements, its shape 5");
    CHECK(errors[0].find(errors[1]) != std::string::npos);
    std::vector<std::int64_t> integers(4);
    const std::vector<Parameter> i64 = {{"count", {4}, view(integers), {}}};
    CHECK(construct({i64})[0].find("'count' i64 [4]: its dtype has no mean") != std::string::npos);
  }

  TEST_CASE("DDP: a rank that fails before construction is named by the others") {
    const auto store = make_hash_store();
    const auto errors = errors_of_ranks(3, [&](int rank) {
      ProcessGroup group(store, rank, 3);
      if (rank == 1) throw UsageError("no data");
      Model model(Shapes{{4}});
      const DistributedDataParallel ddp(group, model.parameters);
    });
    CHECK(errors[0].find("rank 1") != std::string::npos);
    CHECK(errors[2].find("rank 1") != std::string::npos);
  }

  TEST_CASE("DDP: marking wrongly is an error that names the parameter") {
    const auto store = make_hash_store();
    ProcessGroup group(store, 0, 1);
    Model model(Shapes{{4}, {4}});
    DistributedDataParallel ddp(group, model.parameters);
    CHECK_THROWS_WITH_AS(ddp.mark_ready(2), doctest::Contains("no parameter 2"), UsageError);
    ddp.mark_ready(1);
    CHECK_THROWS_WITH_AS(ddp.mark_ready(1), doctest::Contains("parameter 1 'p1' twice"),
                         UsageError);
    ddp.mark_ready(0);
    ddp.synchronize();
  }

  TEST_CASE("DDP: a gradient that was not marked is named with its rank on all ranks") {
    const auto store = make_hash_store();
    const auto start = std::chrono::steady_clock::now();
    const auto errors = errors_of_ranks(3, [&](int rank) {
      ProcessGroup group(store, rank, 3);
      Model model(Shapes{{4}, {4}, {4}, {4}});
      DistributedDataParallel ddp(group, model.parameters, {.bucket_bytes = 1});
      step(model, ddp, rank, 0, 0);
      ddp.mark_ready(3);
      if (rank != 2) ddp.mark_ready(2);
      ddp.mark_ready(1);
      if (rank != 2) ddp.mark_ready(0);
      ddp.synchronize();
    });
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(3));
    const std::string text = "[ddp] synchronize: rank 2 did not mark parameters 0 'p0', 2 'p2'";
    CHECK(errors[2].starts_with(text));
    CHECK(errors[0].find(text) != std::string::npos);
    CHECK(errors[1].find(text) != std::string::npos);
  }

  TEST_CASE("DDP: leaving in the middle of a step fails the other ranks at once") {
    const auto store = make_hash_store();
    const auto start = std::chrono::steady_clock::now();
    const auto errors = errors_of_ranks(2, [&](int rank) {
      ProcessGroup group(store, rank, 2);
      Model model(Shapes{{4}, {4}});
      DistributedDataParallel ddp(group, model.parameters, {.bucket_bytes = 1});
      if (rank == 1) ddp.mark_ready(1);
      if (rank == 1) throw UsageError("out of data");
      step(model, ddp, rank, 0, 0);
    });
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(3));
    CHECK(errors[0].find("rank 1") != std::string::npos);
    CHECK(errors[1] == "out of data");
  }
}
