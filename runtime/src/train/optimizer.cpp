// SPDX-License-Identifier: MIT
// Stochastic gradient descent; see optimizer.h.
#include <ddprun/error.h>
#include <ddprun/optimizer.h>

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

namespace ddprun {
namespace {

// PyTorch rounds lr and momentum to the parameter's type, and every operation by itself.
template <class T>
void update(const Parameter& parameter, std::byte* momentum, const SgdOptions& options) {
  T* const __restrict value = static_cast<T*>(parameter.value.data);
  const T* const __restrict grad = static_cast<const T*>(parameter.grad.data);
  const T lr = static_cast<T>(options.lr);
  const T mu = static_cast<T>(options.momentum);
  const std::size_t n = parameter.value.numel;
  if (momentum == nullptr) {
    for (std::size_t k = 0; k < n; ++k) value[k] -= lr * grad[k];
    return;
  }
  T* const __restrict buf = reinterpret_cast<T*>(momentum);
  for (std::size_t k = 0; k < n; ++k) {
    buf[k] = mu * buf[k] + grad[k];
    value[k] -= lr * buf[k];
  }
}

}  // namespace

Sgd::Sgd(std::span<Parameter> parameters, SgdOptions options)
    : parameters_(parameters), options_(options) {
  set_lr(options_.lr);
  if (!(options_.momentum >= 0) || std::isinf(options_.momentum))
    throw UsageError(
        fmt::format("[optimizer] Sgd: momentum {} must be 0 or more", options_.momentum));
  for (const Parameter& p : parameters_) {
    const DType dtype = p.value.dtype;
    if ((dtype != DType::f32 && dtype != DType::f64) || p.value.device.type != DeviceType::cpu)
      throw UsageError(fmt::format(
          "[optimizer] Sgd: parameter '{}' has dtype {} on {}; it can update f32 and f64 in CPU "
          "memory",
          p.name, name_of(dtype), p.value.device.type == DeviceType::cpu ? "the CPU" : "a GPU"));
    // Zeroed: mu * 0 + grad is grad, which is what PyTorch starts with.
    if (options_.momentum != 0) momentum_.emplace_back(p.value.bytes());
  }
}

void Sgd::set_lr(double lr) {
  if (!(lr >= 0) || std::isinf(lr))
    throw UsageError(fmt::format("[optimizer] Sgd: lr {} must be 0 or more", lr));
  options_.lr = lr;
}

void Sgd::zero_grad() {
  for (const Parameter& p : parameters_)
    std::fill_n(static_cast<std::byte*>(p.grad.data), p.grad.bytes(), std::byte{0});
}

void Sgd::step() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& p = parameters_[i];
    if (p.grad.numel != p.value.numel || p.grad.dtype != p.value.dtype)
      throw UsageError(fmt::format(
          "[optimizer] step: parameter '{}' has {} {} values but a gradient of {} {}; set its "
          "grad, "
          "or give it to a DistributedDataParallel first",
          p.name, p.value.numel, name_of(p.value.dtype), p.grad.numel, name_of(p.grad.dtype)));
    std::byte* const momentum = momentum_.empty() ? nullptr : momentum_[i].data();
    if (p.value.dtype == DType::f32)
      update<float>(p, momentum, options_);
    else
      update<double>(p, momentum, options_);
  }
}

}  // namespace ddprun
