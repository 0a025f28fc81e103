// SPDX-License-Identifier: MIT
// The kernels of ddprun/cuda.h: checks what they are given, and launches them through the plugin.
#include <ddprun/cuda.h>
#include <ddprun/error.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <vector>

#include <fmt/core.h>

#include "base/device_kernels.h"
#include "comm/cuda_plugin.h"

namespace ddprun::cuda {
namespace {

/// A tensor and what messages call it.
struct Named {
  const char* name;
  TensorView view;
};

bool is_given(const Named& t) { return t.view.data != nullptr || t.view.numel != 0; }

std::string describe(const Named& t) {
  if (!is_given(t)) return fmt::format("{} is empty", t.name);
  const Device& device = t.view.device;
  return fmt::format("{} has {} {} {}", t.name, t.view.numel, name_of(t.view.dtype),
                     device.type == DeviceType::cpu ? std::string("in CPU memory")
                                                    : fmt::format("on GPU {}", device.index));
}

bool is_16_bit(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }
bool is_up_to_f32(DType dtype) { return dtype == DType::f32 || is_16_bit(dtype); }

[[noreturn]] void refuse(const char* what, const Named& t, const std::string& needed) {
  throw UsageError(fmt::format("[cuda] {}: {}; {}", what, describe(t), needed));
}

/// A kernel that is handed a bad address ends all work on the device: what can be seen, is.
void require_on_gpu(const char* what, const Named& t) {
  if (t.view.device.type != DeviceType::cuda) refuse(what, t, "it must be on a GPU");
  if (t.view.numel != 0 && t.view.data == nullptr) refuse(what, t, "but no memory");
  if (t.view.numel > std::numeric_limits<std::size_t>::max() / size_of(t.view.dtype))
    refuse(what, t, "that is too many");
  if (reinterpret_cast<std::uintptr_t>(t.view.data) % size_of(t.view.dtype) != 0)
    refuse(what, t, fmt::format("its address must be a multiple of {}", size_of(t.view.dtype)));
}

void require_like(const char* what, const Named& t, const Named& model) {
  require_on_gpu(what, t);
  if (t.view.numel != model.view.numel || t.view.device != model.view.device)
    refuse(what, t, fmt::format("but {}", describe(model)));
}

/// None of what a step reads and writes lies in another.
void require_apart(const char* what, std::initializer_list<Named> tensors) {
  const auto begin = [](const Named* t) { return static_cast<const std::byte*>(t->view.data); };
  for (const Named* a = tensors.begin(); a != tensors.end(); ++a)
    for (const Named* b = a + 1; b != tensors.end(); ++b)
      if (begin(a) < begin(b) + b->view.bytes() && begin(b) < begin(a) + a->view.bytes())
        refuse(what, *a, fmt::format("it overlaps {}", b->name));
}

void require_dtype(const char* what, const Named& t, bool fits, const char* needed) {
  if (!fits) refuse(what, t, fmt::format("it must be {}", needed));
}

void require_convertible(const char* what, const Named& out, const Named& in) {
  const bool both_f64 = out.view.dtype == DType::f64 && in.view.dtype == DType::f64;
  if (!both_f64 && !(is_up_to_f32(out.view.dtype) && is_up_to_f32(in.view.dtype)))
    refuse(what, out,
           fmt::format("but {}; f32, f16 and bf16 convert to each other, f64 to itself",
                       describe(in)));
}

/// The type that kernels take for a copy that is not made; it must be one that they know.
DType copy_type(const Named& copy) { return is_given(copy) ? copy.view.dtype : DType::bf16; }

void require_copy(const char* what, const Named& copy, const Named& value) {
  if (!is_given(copy)) return;
  require_like(what, copy, value);
  require_dtype(what, copy, is_16_bit(copy.view.dtype), "f16 or bf16");
}

void require_number(const char* what, const char* name, double number, bool fits,
                    const char* needed) {
  if (!fits || !std::isfinite(number))
    throw UsageError(fmt::format("[cuda] {}: {} {} must be {}", what, name, number, needed));
}

template <class Arguments>
void launch(const char* what, const Arguments& arguments, std::size_t blocks, Stream stream) {
  require_cuda_plugin(what).launch(Arguments::kKernel, &arguments, blocks, stream);
}

/// What GradientNorm owns on the device.
struct NormMemory {
  NormResult result;
  double slots[SquareSumArguments::kSlots];
};

}  // namespace

void fill_zero(TensorView target, Stream stream) {
  require_on_gpu("fill_zero", {"target", target});
  if (target.numel != 0) require_cuda_plugin("fill_zero").fill_zero(target, stream);
}

void cast(TensorView out, TensorView in, double factor, Stream stream) {
  const Named from{"in", in};
  const Named to{"out", out};
  require_on_gpu("cast", from);
  require_like("cast", to, from);
  require_convertible("cast", to, from);
  const auto* const begin = static_cast<const std::byte*>(in.data);
  const auto* const target = static_cast<const std::byte*>(out.data);
  const bool in_place = begin == target && in.dtype == out.dtype;
  if (!in_place && begin < target + out.bytes() && target < begin + in.bytes())
    refuse("cast", to, "it overlaps in, and is not the same");
  launch("cast", CastArguments{in.data, out.data, in.numel, factor, in.dtype, out.dtype},
         blocks_for(in.numel), stream);
}

Flattener::Flattener(std::span<const TensorView> tensors) {
  if (tensors.empty()) throw UsageError("[cuda] Flattener: no tensors were given");
  dtype_ = tensors[0].dtype;
  device_ = tensors[0].device;
  origin_ = tensors[0].data;
  std::vector<Chunk> table;
  for (const TensorView& tensor : tensors) {
    const std::string name = fmt::format("tensor {}", &tensor - tensors.data());
    const Named named{name.c_str(), tensor};
    require_on_gpu("Flattener", named);
    require_convertible("Flattener", named, named);
    if (tensor.dtype != dtype_ || tensor.device != device_)
      refuse("Flattener", named, fmt::format("but {}", describe({"tensor 0", tensors[0]})));
    const auto place =
        reinterpret_cast<std::intptr_t>(tensor.data) - reinterpret_cast<std::intptr_t>(origin_);
    for (std::size_t done = 0; done < tensor.numel; done += Chunk::kMaxNumel)
      table.push_back({place + static_cast<std::ptrdiff_t>(done * size_of(dtype_)), numel_ + done,
                       std::min(tensor.numel - done, Chunk::kMaxNumel)});
    numel_ += tensor.numel;
  }
  chunk_count_ = table.size();
  table_ = require_cuda_plugin("Flattener")
               .allocate(table.size() * sizeof(Chunk), device_.index, table.data());
}

void Flattener::pack(TensorView flat, double factor, bool into_flat, Stream stream) const {
  const char* const what = into_flat ? "flatten" : "unflatten";
  const Named buffer{"flat", flat};
  const Named tensors{"the sum of tensors", {nullptr, numel_, dtype_, device_}};
  require_like(what, buffer, tensors);
  require_convertible(what, buffer, tensors);
  launch(what,
         PackArguments{reinterpret_cast<const Chunk*>(table_.get()), chunk_count_, origin_,
                       flat.data, factor, dtype_, flat.dtype, into_flat},
         chunk_count_, stream);
}

void Flattener::flatten(TensorView flat, double factor, Stream stream) const {
  pack(flat, factor, true, stream);
}

void Flattener::unflatten(TensorView flat, double factor, Stream stream) const {
  pack(flat, factor, false, stream);
}

GradientNorm::GradientNorm(int device, std::int32_t steps) : device_(device) {
  NormMemory start{};
  start.result.steps = steps;
  start.result.found_inf = 1;  // until there is a norm
  memory_ = require_cuda_plugin("GradientNorm").allocate(sizeof(NormMemory), device, &start);
}

void GradientNorm::compute(std::span<const TensorView> gradients, double unscale, double max_norm,
                           Stream stream) {
  const char* const what = "GradientNorm";
  if (gradients.empty()) throw UsageError("[cuda] GradientNorm: no gradients were given");
  const auto factor = static_cast<float>(unscale);  // what the kernel makes of it
  require_number(what, "unscale", unscale, factor > 0 && std::isfinite(factor),
                 "more than 0 and in the range of f32");
  if (!(max_norm > 0))
    throw UsageError(fmt::format("[cuda] GradientNorm: max_norm {} must be more than 0", max_norm));
  for (const TensorView& gradient : gradients) {
    const Named named{"gradient", gradient};
    require_on_gpu(what, named);
    require_dtype(what, named, is_up_to_f32(gradient.dtype), "f32, f16 or bf16");
    if (gradient.device.index != device_)
      refuse(what, named, fmt::format("but the norm is computed on GPU {}", device_));
  }
  auto* const memory = reinterpret_cast<NormMemory*>(memory_.get());
  for (const TensorView& gradient : gradients)
    launch(what,
           SquareSumArguments{gradient.data, memory->slots, gradient.numel, gradient.dtype,
                              &gradient != gradients.data()},
           SquareSumArguments::kSlots, stream);
  launch(what, NormArguments{memory->slots, &memory->result, unscale, max_norm}, 1, stream);
}

const NormResult* GradientNorm::result() const {
  return &reinterpret_cast<const NormMemory*>(memory_.get())->result;
}

NormResult GradientNorm::read(Stream stream, Deadline deadline) const {
  NormResult result{};
  require_cuda_plugin("GradientNorm")
      .read(&result, this->result(), sizeof(result), stream, deadline);
  return result;
}

void sgd_step(const SgdTensors& t, const SgdOptions& options, Stream stream) {
  const char* const what = "sgd_step";
  const Named value{"value", t.value};
  const Named gradient{"gradient", t.gradient};
  const Named momentum{"momentum", t.momentum};
  const Named copy{"copy", t.copy};
  const bool f64 = t.value.dtype == DType::f64;
  require_number(what, "lr", options.lr, options.lr >= 0, "0 or more");
  require_number(what, "momentum", options.momentum, options.momentum >= 0, "0 or more");
  require_on_gpu(what, value);
  require_dtype(what, value, f64 || t.value.dtype == DType::f32, "f32 or f64");
  require_like(what, gradient, value);
  require_dtype(what, gradient,
                f64 ? t.gradient.dtype == DType::f64 : is_up_to_f32(t.gradient.dtype),
                f64 ? "f64 like value" : "f32, f16 or bf16");
  if (is_given(momentum)) {
    require_like(what, momentum, value);
    require_dtype(what, momentum, t.momentum.dtype == t.value.dtype, "of value's dtype");
  } else if (options.momentum != 0) {
    refuse(what, momentum, fmt::format("but options.momentum is {}", options.momentum));
  }
  if (f64 && is_given(copy)) refuse(what, copy, "an f64 value can have none");
  require_copy(what, copy, value);
  require_apart(what, {value, gradient, momentum, copy});
  launch(what,
         SgdArguments{t.value.data, t.gradient.data, t.momentum.data, t.copy.data, t.norm,
                      t.value.numel, options.lr, options.momentum, t.value.dtype, t.gradient.dtype,
                      copy_type(copy)},
         blocks_for(t.value.numel), stream);
}

void adamw_step(const AdamWTensors& t, const AdamWOptions& options, std::int64_t step,
                Stream stream) {
  const char* const what = "adamw_step";
  const Named value{"value", t.value};
  require_number(what, "lr", options.lr, options.lr >= 0, "0 or more");
  require_number(what, "beta1", options.beta1, options.beta1 >= 0 && options.beta1 < 1,
                 "0 or more and less than 1");
  require_number(what, "beta2", options.beta2, options.beta2 >= 0 && options.beta2 < 1,
                 "0 or more and less than 1");
  require_number(what, "eps", options.eps, options.eps >= 0, "0 or more");
  require_number(what, "weight_decay", options.weight_decay, options.weight_decay >= 0,
                 "0 or more");
  if (t.norm == nullptr && step < 1)
    throw UsageError(fmt::format("[cuda] adamw_step: step {} must be 1 or more", step));
  require_on_gpu(what, value);
  for (const Named& f32 :
       {value, Named{"first_moment", t.first_moment}, Named{"second_moment", t.second_moment}}) {
    require_like(what, f32, value);
    require_dtype(what, f32, f32.view.dtype == DType::f32, "f32");
  }
  const Named gradient{"gradient", t.gradient};
  require_like(what, gradient, value);
  require_dtype(what, gradient, is_up_to_f32(t.gradient.dtype), "f32, f16 or bf16");
  const Named copy{"copy", t.copy};
  require_copy(what, copy, value);
  require_apart(what, {value, gradient, Named{"first_moment", t.first_moment},
                       Named{"second_moment", t.second_moment}, copy});
  launch(what,
         AdamWArguments{static_cast<float*>(t.value.data), t.gradient.data,
                        static_cast<float*>(t.first_moment.data),
                        static_cast<float*>(t.second_moment.data), t.copy.data, t.norm,
                        t.value.numel, options.lr, options.beta1, options.beta2, options.eps,
                        options.weight_decay, step, t.gradient.dtype, copy_type(copy)},
         blocks_for(t.value.numel), stream);
}

}  // namespace ddprun::cuda
