// SPDX-License-Identifier: MIT
// Bucket assignment against PyTorch's, and the layout inside a bucket.
#include "ddp/bucket_plan.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "support/vectors.h"

using namespace ddprun;
using Indices = std::vector<std::size_t>;

namespace {

TensorView tensor(std::size_t numel, DType dtype = DType::f32) {
  return {nullptr, numel, dtype, {}};
}

std::optional<DType> dtype_of(const std::string& name) {
  for (const DType dtype : {DType::f32, DType::f64})
    if (name_of(dtype) == name) return dtype;
  return std::nullopt;
}

std::vector<Indices> contents(const std::vector<Bucket>& buckets) {
  std::vector<Indices> result;
  for (const Bucket& bucket : buckets) {
    result.emplace_back();
    for (const Slice& slice : bucket.slices) result.back().push_back(slice.parameter);
  }
  return result;
}

Indices ascending(std::size_t n) {
  Indices order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

Indices descending(std::size_t n) {
  Indices order = ascending(n);
  std::ranges::reverse(order);
  return order;
}

Indices limits_of(const nlohmann::json& c) {
  Indices limits;
  for (const auto& limit : c["limits"]) limits.push_back(std::stoull(limit.get<std::string>()));
  return limits;
}

}  // namespace

TEST_SUITE("ddp") {
  TEST_CASE("plan_buckets: fills buckets as PyTorch does") {
    const auto vectors = test::read_vectors("buckets.json");
    int compared = 0;
    for (const auto& c : vectors["cases"]) {
      std::vector<TensorView> tensors;
      for (const auto& t : vectors["lists"][c["list"].get<std::string>()])
        if (const auto dtype = dtype_of(t[1])) tensors.push_back(tensor(t[0], *dtype));
      if (tensors.size() != vectors["lists"][c["list"].get<std::string>()].size()) continue;
      auto got = contents(plan_buckets(tensors, ascending(tensors.size()), limits_of(c)));
      // Without an explicit order PyTorch sorts the buckets afterwards.
      std::ranges::sort(got, {}, [](const Indices& bucket) { return std::ranges::min(bucket); });
      CHECK_MESSAGE(got == c["buckets"].get<std::vector<Indices>>(), c.dump());
      ++compared;
    }
    CHECK(compared == 63);  // all but those with 16-bit floats
  }

  TEST_CASE("plan_buckets: follows an explicit order as PyTorch does") {
    const auto vectors = test::read_vectors("buckets.json");
    int compared = 0;
    for (const auto& c : vectors["extra"]) {
      if (c["tensor_indices"].empty() || c.contains("warning")) continue;
      std::vector<TensorView> tensors;
      for (const auto& numel : c["sizes"]) tensors.push_back(tensor(numel));
      const auto got =
          contents(plan_buckets(tensors, c["tensor_indices"].get<Indices>(), limits_of(c)));
      CHECK_MESSAGE(got == c["buckets"].get<std::vector<Indices>>(), c.dump());
      ++compared;
    }
    CHECK(compared == 2);
  }

  TEST_CASE("plan_buckets: in reverse order it makes the buckets that PyTorch rebuilds") {
    const auto vectors = test::read_vectors("buckets.json");
    int compared = 0;
    for (const auto& c : vectors["ddp"]) {
      const auto& logged = c["logging"];
      if (!logged["rebuilt_bucket_sizes"].is_string()) continue;
      std::vector<TensorView> tensors;
      for (const auto& numel : c["sizes"]) tensors.push_back(tensor(numel));
      const Indices limits = {std::size_t{1} << 20, logged["bucket_cap_bytes"]};
      std::vector<std::size_t> sizes;
      std::vector<std::string> parameters;
      const auto buckets = plan_buckets(tensors, descending(tensors.size()), limits);
      for (const Bucket& bucket : buckets) sizes.push_back(bucket.bytes);
      for (const Indices& bucket : contents(buckets))
        parameters.push_back(fmt::format("{}", fmt::join(bucket, " ")));
      CHECK(fmt::format("{}", fmt::join(sizes, ", ")) == logged["rebuilt_bucket_sizes"]);
      CHECK(fmt::format("{}", fmt::join(parameters, ", ")) ==
            logged["rebuilt_per_bucket_param_indices"]);
      ++compared;
    }
    CHECK(compared == 5);
  }

  TEST_CASE("plan_buckets: one dtype a bucket and slices without gaps") {
    const std::vector<TensorView> tensors = {tensor(3), tensor(5, DType::f64), tensor(0), tensor(7),
                                             tensor(2, DType::f64)};
    const Indices limits = {1000};
    const auto buckets = plan_buckets(tensors, descending(5), limits);
    REQUIRE(buckets.size() == 2);
    CHECK(contents(buckets) == std::vector<Indices>{{4, 1}, {3, 2, 0}});
    CHECK(buckets[0].dtype == DType::f64);
    CHECK(buckets[0].bytes == 7 * 8);
    CHECK(buckets[0].slices[1].offset == 2 * 8);
    CHECK(buckets[1].dtype == DType::f32);
    CHECK(buckets[1].bytes == 10 * 4);
    CHECK(buckets[1].slices[1].offset == 7 * 4);
    CHECK(buckets[1].slices[2].offset == 7 * 4);
  }

  TEST_CASE("plan_buckets: one device a bucket") {
    const std::vector<TensorView> tensors = {{nullptr, 3, DType::f32, {DeviceType::cuda, 0}},
                                             {nullptr, 3, DType::f32, {DeviceType::cuda, 1}}};
    CHECK(plan_buckets(tensors, ascending(2), Indices{1000}).size() == 2);
  }
}
