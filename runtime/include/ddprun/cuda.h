// SPDX-License-Identifier: MIT
// GPUs for a program that has CUDA itself: what there is, and kernels that a data-parallel training
// step needs around its all-reduce. They launch on the caller's stream and never wait for the
// device or allocate, so they may be captured in a CUDA graph; what does wait says so. "B/element"
// is the memory that a kernel moves: what its time is measured by.
//
// Threads: any; the calling thread's device must be that of the tensors (cudaSetDevice).
// Throws:  DeviceError when there is no GPU or CUDA refuses; UsageError for tensors that do not fit
//          together, before anything is launched.
#pragma once

#include <ddprun/deadline.h>
#include <ddprun/export.h>
#include <ddprun/optimizer.h>
#include <ddprun/stream.h>
#include <ddprun/tensor_view.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>

namespace ddprun::cuda {

/// Empty when this process can use GPU `device`, an index into what CUDA_VISIBLE_DEVICES shows;
/// else why not, in one line. Never throws for a machine without GPUs.
DDPRUN_API std::string why_unavailable(int device = 0);
/// How many GPUs this process sees; 0 when there are none.
DDPRUN_API int device_count();

/// `stream` of the program (cudaStream_t) as ddprun's calls take it.
inline Stream stream(void* cuda_stream) { return {cuda_stream}; }

/// Device memory, zeroed. Owns: the caller; the last owner frees it, from any thread, which waits
/// for the device. Blocks: until it is zeroed.
DDPRUN_API std::shared_ptr<std::byte[]> allocate(std::size_t bytes, int device = 0);

/// Sets every element to 0, in the order of `stream`.
DDPRUN_API void fill_zero(TensorView target, Stream stream);

/// out = in * factor, computed in f32 and rounded once, to nearest even.
/// Shape: as many elements; f32, f16 and bf16 to each other, or f64 to f64. In place when both are
///        the same memory and dtype. size_of(in) + size_of(out) B/element.
DDPRUN_API void cast(TensorView out, TensorView in, double factor, Stream stream);

/// Copies tensors that lie anywhere into one flat buffer, in their order and without gaps, and
/// back, each in one launch.
/// Owns: a table in device memory; the tensors' memory must outlive it.
class DDPRUN_API Flattener {
 public:
  /// Shape:  one device, one dtype (f32, f16, bf16 or f64).
  /// Blocks: until the table is on the device.
  explicit Flattener(std::span<const TensorView> tensors);

  std::size_t numel() const { return numel_; }
  /// flat = tensors * factor. Shape: numel() elements; dtypes as in cast, and its B/element.
  void flatten(TensorView flat, double factor, Stream stream) const;
  /// tensors = flat * factor.
  void unflatten(TensorView flat, double factor, Stream stream) const;

 private:
  void pack(TensorView flat, double factor, bool into_flat, Stream stream) const;

  std::shared_ptr<std::byte[]> table_;
  std::size_t chunk_count_ = 0;
  void* origin_ = nullptr;  // the table holds distances from here
  std::size_t numel_ = 0;
  DType dtype_ = DType::f32;
  Device device_{};
};

/// In device memory: what an optimizer step must know about the gradient as a whole.
struct NormResult {
  float norm;              // of the unscaled gradient
  float factor;            // unscales and clips: gradient * factor is what a step uses
  std::int32_t found_inf;  // 1: some element is inf or NaN (f16, f32: or above 6e18); factor is 0
  std::int32_t steps;      // how many computed norms were finite: AdamW's step number
};

/// The L2 norm of a gradient, and from it the factor of torch.nn.utils.clip_grad_norm_. The same
/// gradient gives the same bits on every GPU, so replicas clip alike without communication.
/// https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html
/// Owns: its result, which each compute() overwrites.
class DDPRUN_API GradientNorm {
 public:
  static constexpr double kNoClipping = std::numeric_limits<double>::infinity();

  /// `steps`: how many were taken before, when training is resumed. Blocks: until it is set up.
  explicit GradientNorm(int device = 0, std::int32_t steps = 0);

  /// norm = unscale * |gradients|; factor = unscale * min(1, max_norm / (norm + 1e-6)).
  /// Shape: f32, f16 or bf16, each its own; read once: size_of(gradient) B/element.
  void compute(std::span<const TensorView> gradients, double unscale, double max_norm,
               Stream stream);
  /// For the steps below, and for kernels of your own.
  const NormResult* result() const;
  /// Blocks: until `stream` has done what is on it. Throws: TimeoutError.
  NormResult read(Stream stream, Deadline deadline) const;

 private:
  std::shared_ptr<std::byte[]> memory_;  // the result, then the partial sums
  int device_ = 0;
};

/// Where a step works; flat ranges of as many elements each on one device. The step is left out
/// when norm->found_inf, and uses gradient * norm->factor; a null norm means factor 1.
struct SgdTensors {
  TensorView value{};     // f32, or f64 with all else f64 and without copy
  TensorView gradient{};  // f32, f16 or bf16
  TensorView momentum{};  // as value, zeroed before the first step; empty: no momentum
  TensorView copy{};      // gets the new value as f16 or bf16; may be empty
  const NormResult* norm = nullptr;
};

/// momentum = options.momentum * momentum + gradient; value -= lr * momentum, as Sgd does.
/// f32: 20 B/element, 12 without momentum; bf16 gradient and copy: 20.
DDPRUN_API void sgd_step(const SgdTensors& tensors, const SgdOptions& options, Stream stream);

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
};

struct AdamWTensors {
  TensorView value{};          // f32
  TensorView gradient{};       // f32, f16 or bf16
  TensorView first_moment{};   // f32, zeroed before the first step
  TensorView second_moment{};  // f32, zeroed before the first step
  TensorView copy{};           // gets the new value as f16 or bf16; may be empty
  const NormResult* norm = nullptr;
};

/// AdamW with decoupled decay, both corrections, eps outside the root:
/// https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html
/// `step` counts from 1; with a norm it is not used, since norm->steps leaves out skipped steps.
/// f32: 28 B/element; bf16 gradient and copy: 28; f32 gradient with copy: 30.
DDPRUN_API void adamw_step(const AdamWTensors& tensors, const AdamWOptions& options,
                           std::int64_t step, Stream stream);

}  // namespace ddprun::cuda
