// SPDX-License-Identifier: MIT
// Stochastic gradient descent; see optimizer.h.
#include <ddprun/cuda.h>
#include <ddprun/error.h>
#include <ddprun/optimizer.h>

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

namespace ddprun {
namespace {

// PyTorch rounds lr and momentum to the parameter's type, and every operation by itself.
template <class T>
void update_on_cpu(const Parameter& parameter, std::byte* momentum, const SgdOptions& options) {
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

void update_on_gpu(const Parameter& parameter, std::byte* momentum, const SgdOptions& options,
                   Stream stream) {
  cuda::SgdTensors tensors{.value = parameter.value, .gradient = parameter.grad};
  if (momentum != nullptr) {
    tensors.momentum = parameter.value;
    tensors.momentum.data = momentum;
  }
  cuda::sgd_step(tensors, options, stream);
}

bool on_gpu(const Parameter& p) { return p.value.device.type == DeviceType::cuda; }

void require_gradient(const Parameter& p) {
  if (p.grad.numel != p.value.numel || p.grad.dtype != p.value.dtype ||
      p.grad.device != p.value.device)
    throw UsageError(fmt::format(
        "[optimizer] step: parameter '{}' has {} {} values but a gradient of {} {}; set its grad "
        "on the same device, or give it to a DistributedDataParallel first",
        p.name, p.value.numel, name_of(p.value.dtype), p.grad.numel, name_of(p.grad.dtype)));
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
    if (dtype != DType::f32 && dtype != DType::f64)
      throw UsageError(
          fmt::format("[optimizer] Sgd: parameter '{}' has dtype {}; it can update f32 and f64",
                      p.name, name_of(dtype)));
    if (options_.momentum == 0) continue;
    // Zeroed: mu * 0 + grad is grad, which is what PyTorch starts with.
    const std::size_t bytes = p.value.bytes();
    momentum_.push_back(on_gpu(p) ? cuda::allocate(bytes, p.value.device.index)
                                  : std::make_shared<std::byte[]>(bytes));
  }
}

void Sgd::set_lr(double lr) {
  if (!(lr >= 0) || std::isinf(lr))
    throw UsageError(fmt::format("[optimizer] Sgd: lr {} must be 0 or more", lr));
  options_.lr = lr;
}

void Sgd::zero_grad(Stream stream) {
  for (const Parameter& p : parameters_) {
    if (on_gpu(p))
      cuda::fill_zero(p.grad, stream);
    else
      std::fill_n(static_cast<std::byte*>(p.grad.data), p.grad.bytes(), std::byte{0});
  }
}

void Sgd::step(Stream stream) {
  std::ranges::for_each(parameters_, require_gradient);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& p = parameters_[i];
    std::byte* const momentum = momentum_.empty() ? nullptr : momentum_[i].get();
    if (on_gpu(p))
      update_on_gpu(p, momentum, options_, stream);
    else if (p.value.dtype == DType::f32)
      update_on_cpu<float>(p, momentum, options_);
    else
      update_on_cpu<double>(p, momentum, options_);
  }
}

}  // namespace ddprun
