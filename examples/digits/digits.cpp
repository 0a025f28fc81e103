// SPDX-License-Identifier: MIT
// Reads the digits with zlib; see digits.h.
#include "digits.h"

#include <array>
#include <charconv>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include <zlib.h>

namespace digits {
namespace {

constexpr int kPixelMax = 16;

[[noreturn]] void fail(const std::filesystem::path& file, const std::string& what) {
  throw std::runtime_error("[digits] " + file.string() + ": " + what);
}

std::string read_all(const std::filesystem::path& file) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> in(gzopen(file.c_str(), "rb"), gzclose);
  if (!in) fail(file, "cannot be opened; give its path with --data FILE");
  std::string text;
  std::array<char, 1 << 16> chunk;
  int n = 0;
  while ((n = gzread(in.get(), chunk.data(), chunk.size())) > 0)
    text.append(chunk.data(), static_cast<std::size_t>(n));
  int code = Z_OK;
  const char* const message = gzerror(in.get(), &code);
  if (code != Z_OK) fail(file, std::string("is damaged or cut off: ") + message);
  return text;
}

// The number at the start of `text`, which must end at a comma or at the end; -1 for anything else.
int take_number(std::string_view& text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (error != std::errc() || (!text.empty() && text.front() != ',')) return -1;
  if (!text.empty()) text.remove_prefix(1);
  return value;
}

// Pixels and label of one line; label -1 when it is not a sample.
int parse_line(std::string_view line, std::span<double> pixels) {
  for (double& pixel : pixels) {
    const int value = take_number(line);
    if (value < 0 || value > kPixelMax) return -1;
    pixel = value / static_cast<double>(kPixelMax);
  }
  const int label = take_number(line);
  return line.empty() && label < static_cast<int>(kClasses) ? label : -1;
}

}  // namespace

void Samples::append(std::span<const double> row, int label) {
  pixels.insert(pixels.end(), row.begin(), row.end());
  labels.push_back(label);
}

Samples Samples::gather(std::span<const std::size_t> indices) const {
  Samples result;
  result.pixels.reserve(indices.size() * kPixels);
  for (const std::size_t i : indices)
    result.append(std::span(pixels).subspan(i * kPixels, kPixels), labels[i]);
  return result;
}

Data load(const std::filesystem::path& file) {
  const std::string text = read_all(file);
  Data data;
  std::array<double, kPixels> pixels;
  std::size_t row = 0;
  for (std::size_t begin = 0; begin < text.size(); ++row) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const int label = parse_line(std::string_view(text).substr(begin, end - begin), pixels);
    if (label < 0)
      fail(file, "line " + std::to_string(row + 1) + " is not 64 pixels of 0..16 and a label");
    if (row % 5 == 0)
      data.test.append(pixels, label);
    else if (data.training.size() < kTrainingSamples)
      data.training.append(pixels, label);
    begin = end + 1;
  }
  if (data.training.size() < kTrainingSamples)
    fail(file, "has only " + std::to_string(row) + " samples; is it complete?");
  return data;
}

}  // namespace digits
