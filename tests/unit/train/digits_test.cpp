// SPDX-License-Identifier: MIT
// The digits example's data and model: the split, damaged files, and the gradient against finite
// differences.
#include "digits.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <unistd.h>

#include "mlp.h"

using namespace digits;

namespace {

// A file in the temporary directory, removed at the end.
class TempFile {
 public:
  explicit TempFile(const std::string& content)
      : path_(std::filesystem::temp_directory_path() /
              ("ddprun-digits-" + std::to_string(::getpid()))) {
    std::ofstream(path_, std::ios::binary) << content;
  }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  ~TempFile() { std::filesystem::remove(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string row(int label) {
  std::string text;
  for (std::size_t k = 0; k < kPixels; ++k) text += "16,";
  return text + std::to_string(label) + "\n";
}

std::string repeat(const std::string& text, int n) {
  std::string result;
  for (int i = 0; i < n; ++i) result += text;
  return result;
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_SUITE("digits") {
  TEST_CASE("digits: every fifth row is for testing and 1408 of the others for training") {
    const Data data = load(DIGITS_DATA);
    CHECK(data.test.size() == 360);
    CHECK(data.training.size() == 1408);
    CHECK(data.test.labels[0] == 0);      // row 0
    CHECK(data.training.labels[0] == 1);  // row 1
    CHECK(data.test.labels[1] == 5);      // row 5
    CHECK(data.training.labels[4] == 6);  // row 6
    CHECK(data.test.pixels[2] == 5.0 / 16);
    const std::vector<std::size_t> indices = {4, 0};
    CHECK(data.training.gather(indices).labels == std::vector<int>{6, 1});
  }

  TEST_CASE("digits: an unusable file is one line with its name and the reason") {
    const auto refuses = [](const std::string& content, const char* reason) {
      const TempFile file(content);
      CHECK_THROWS_WITH(load(file.path()), doctest::Contains(file.path().c_str()));
      CHECK_THROWS_WITH(load(file.path()), doctest::Contains(reason));
    };
    const std::string good = contents(DIGITS_DATA);
    std::string damaged = good;
    damaged[good.size() / 2] ^= 0x40;
    refuses(good.substr(0, good.size() / 2), "damaged or cut off");
    refuses(damaged, "damaged or cut off");
    refuses("", "has only 0 samples");
    refuses(repeat(row(3), 1000), "has only 1000 samples");
    refuses(row(3) + row(10), "line 2 is not");
    refuses(row(3) + "1,2,3\n", "line 2 is not");
    refuses(row(3) + "\n", "line 2 is not");
    refuses("17," + row(3), "line 1 is not");
    CHECK_THROWS_WITH(load("/no/such/file"), doctest::Contains("/no/such/file: cannot be opened"));
  }

  TEST_CASE("Mlp: the gradient is the slope of the loss") {
    Mlp model(6, 20, 4, 1);  // two blocks of rows, the second one short
    std::mt19937 generator(2);
    std::vector<double> x(5 * 6);
    for (double& v : x) v = static_cast<double>(generator() % 1000) / 500 - 1;
    const std::vector<int> labels = {0, 3, 1, 2, 3};
    const auto loss = [&] { return model.backward(x, labels, [](std::size_t) {}); };
    for (auto& p : model.parameters()) {
      for (std::size_t k = 0; k < p.value.numel; ++k) {
        CAPTURE(p.name);
        CAPTURE(k);
        double& value = static_cast<double*>(p.value.data)[k];
        const double old = value;
        constexpr double kStep = 1e-6;
        value = old + kStep;
        const double above = loss();
        value = old - kStep;
        const double below = loss();
        value = old;
        loss();
        const double slope = (above - below) / (2 * kStep);
        CHECK(std::abs(static_cast<double*>(p.grad.data)[k] - slope) < 1e-7);
      }
    }
  }

  TEST_CASE("Mlp: gradients become ready once each and from the last to the first") {
    Mlp model(64, 128, 10, 0);
    CHECK(model.parameters().size() == 11);
    const std::vector<double> x(64, 0.5);
    const std::vector<int> labels = {3};
    std::vector<std::size_t> ready;
    const double loss = model.backward(x, labels, [&](std::size_t i) { ready.push_back(i); });
    CHECK(loss == doctest::Approx(std::log(10.0)).epsilon(0.2));
    CHECK(ready == std::vector<std::size_t>{10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0});
  }
}
