// SPDX-License-Identifier: MIT
// Reads the reference vectors of tests/data/vectors (see the README there).
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace ddprun::test {

inline nlohmann::json read_vectors(const std::string& name) {
  const std::string path = std::string(DDPRUN_TEST_DATA) + "/vectors/" + name;
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot open " + path);
  return nlohmann::json::parse(in);
}

/// FNV-1a over the indices as little-endian i64, as 16 hex digits.
inline std::string fnv1a64(std::span<const std::size_t> indices) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::size_t index : indices)
    for (int shift = 0; shift < 64; shift += 8)
      hash = (hash ^ (index >> shift & 0xff)) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

}  // namespace ddprun::test
