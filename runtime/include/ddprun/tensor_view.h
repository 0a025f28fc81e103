// SPDX-License-Identifier: MIT
// A flat, contiguous, typed region of memory that somebody else owns; and what a model's parameter
// is made of.
#pragma once

#include <ddprun/export.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

/// f16 and bf16 are reduced on GPUs only; the cpu backend copies them.
enum class DType : std::uint8_t { f32, f64, i32, i64, f16, bf16 };
DDPRUN_API std::size_t size_of(DType dtype);
/// "f32", "f64", ...
DDPRUN_API std::string_view name_of(DType dtype);

enum class DeviceType : std::uint8_t { cpu, cuda };

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

/// Units: numel counts elements. Owns: nothing; the memory must outlive every operation on it.
struct TensorView {
  void* data = nullptr;
  std::size_t numel = 0;
  DType dtype = DType::f32;
  Device device{};

  std::size_t bytes() const { return numel * size_of(dtype); }
};

inline TensorView view(std::span<float> s) { return {s.data(), s.size(), DType::f32, {}}; }
inline TensorView view(std::span<double> s) { return {s.data(), s.size(), DType::f64, {}}; }
inline TensorView view(std::span<std::int32_t> s) { return {s.data(), s.size(), DType::i32, {}}; }
inline TensorView view(std::span<std::int64_t> s) { return {s.data(), s.size(), DType::i64, {}}; }

/// One named tensor of a model and its gradient.
/// Shape: value has the product of `shape` elements; grad, which may be left empty until a
///        DistributedDataParallel sets it, as many, with the same dtype and device.
/// Owns:  value is the model's. grad is the model's until a DistributedDataParallel is made, which
///        points it into its buckets (see ddp.h).
struct Parameter {
  std::string name;
  std::vector<std::int64_t> shape;
  TensorView value;
  TensorView grad;
};

}  // namespace ddprun
