// SPDX-License-Identifier: MIT
// Construction of DistributedDataParallel: check, agree, plan, give all ranks the values of rank 0.
// The steps themselves are the Reducer's.
#include <ddprun/ddp.h>
#include <ddprun/error.h>

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "comm/agreement.h"
#include "ddp/reducer.h"

namespace ddprun {
namespace {

std::string describe(const Parameter& p) {
  return fmt::format("'{}' {} [{}]", p.name, name_of(p.value.dtype), fmt::join(p.shape, ", "));
}

// What is wrong with one parameter by itself; empty when nothing is.
std::string fault_of(const Parameter& p, Device group, Device first) {
  const DType dtype = p.value.dtype;
  const bool half = dtype == DType::f16 || dtype == DType::bf16;
  if (dtype != DType::f32 && dtype != DType::f64 && !half)
    return "its dtype has no mean; only floating point can be trained";
  if (p.value.device != Device{} && p.value.device != group)
    return "it is neither on the GPU of the group nor in CPU memory";
  if (p.value.device != first) return "it is not on the device of parameter 0";
  if (half && first == Device{}) return "f16 and bf16 are reduced on GPUs only";
  std::size_t numel = 1;
  for (const std::int64_t extent : p.shape) {
    if (extent < 0) return "its shape has a negative extent";
    numel *= static_cast<std::size_t>(extent);
  }
  if (p.value.numel != numel)
    return fmt::format("its value has {} elements, its shape {}", p.value.numel, numel);
  if (p.value.data == nullptr && numel != 0) return "its value has no memory";
  return {};
}

void require_valid(std::span<const Parameter> parameters, Device device) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string fault = fault_of(parameters[i], device, parameters[0].value.device);
    if (!fault.empty())
      throw UsageError(fmt::format("[ddp] construction: parameter {} {}: {}", i,
                                   describe(parameters[i]), fault));
  }
}

void require_agreement(ProcessGroup& group, std::span<const Parameter> parameters,
                       const DdpOptions& options) {
  std::vector<std::string> facts;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    facts.push_back(fmt::format("parameter {}: {}", i, describe(parameters[i])));
  facts.push_back(fmt::format("{} parameters in all", parameters.size()));
  facts.push_back(fmt::format("bucket_bytes {}, first_bucket_bytes {}", options.bucket_bytes,
                              options.first_bucket_bytes));
  for (std::size_t k = 0; k < options.order.size(); ++k)
    facts.push_back(fmt::format("order[{}] = {}", k, options.order[k]));
  require_same_on_all_ranks(group, "[ddp] construction", facts,
                            "build the same model with the same options on every rank");
  if (parameters.empty())
    throw UsageError("[ddp] construction: there are no parameters to average the gradients of");
}

std::vector<std::size_t> order_of(std::span<const Parameter> parameters,
                                  const DdpOptions& options) {
  std::vector<std::size_t> all(parameters.size());
  std::iota(all.rbegin(), all.rend(), std::size_t{0});
  if (options.order.empty()) return all;
  if (!std::ranges::is_permutation(options.order, all))
    throw UsageError(fmt::format(
        "[ddp] construction: DdpOptions::order has {} entries; it must name each of the {} "
        "parameters once",
        options.order.size(), parameters.size()));
  return options.order;
}

std::vector<Bucket> plan(std::span<const Parameter> parameters, const DdpOptions& options) {
  std::vector<TensorView> gradients;
  for (const Parameter& p : parameters) gradients.push_back(p.value);
  const std::size_t limits[] = {std::min(options.first_bucket_bytes, options.bucket_bytes),
                                options.bucket_bytes};
  return plan_buckets(gradients, order_of(parameters, options), limits);
}

// Every rank starts from the values of rank 0.
void broadcast_values(ProcessGroup& group, std::span<const Parameter> parameters, Stream stream) {
  std::vector<Work> works;
  for (const Parameter& p : parameters) works.push_back(group.broadcast(p.value, 0, stream, true));
  for (const Work& work : works) work.wait();
}

std::vector<std::string> names_of(std::span<const Parameter> parameters) {
  std::vector<std::string> names;
  for (const Parameter& p : parameters) names.push_back(p.name);
  return names;
}

}  // namespace

struct DistributedDataParallel::Impl {
  Impl(ProcessGroup& group, std::span<const Parameter> parameters, const DdpOptions& options)
      : reducer(group, names_of(parameters), plan(parameters, options)),
        gradients(parameters.size()) {}

  Reducer reducer;
  std::vector<TensorView> gradients;  // by parameter
};

DistributedDataParallel::DistributedDataParallel(ProcessGroup& group,
                                                 std::span<Parameter> parameters,
                                                 DdpOptions options) {
  try {
    require_valid(parameters, group.device());
  } catch (const UsageError& e) {
    group.abort(fmt::format("rank {}: {}", group.rank(), e.what()));
    throw;
  }
  require_agreement(group, parameters, options);
  impl_ = std::make_unique<Impl>(group, parameters, options);
  broadcast_values(group, parameters, options.stream);
  for (std::size_t k = 0; k < bucket_count(); ++k) {
    auto* const memory = static_cast<std::byte*>(impl_->reducer.memory(k).data);
    for (const Slice& slice : impl_->reducer.buckets()[k].slices) {
      Parameter& p = parameters[slice.parameter];
      p.grad = {memory + slice.offset, p.value.numel, p.value.dtype, p.value.device};
      impl_->gradients[slice.parameter] = p.grad;
    }
  }
}

DistributedDataParallel::DistributedDataParallel(DistributedDataParallel&&) noexcept = default;
DistributedDataParallel& DistributedDataParallel::operator=(DistributedDataParallel&&) noexcept =
    default;
DistributedDataParallel::~DistributedDataParallel() = default;

TensorView DistributedDataParallel::gradient(std::size_t i) const {
  if (i >= impl_->gradients.size())
    throw UsageError(fmt::format("[ddp] gradient: there is no parameter {}; there are {}", i,
                                 impl_->gradients.size()));
  return impl_->gradients[i];
}

void DistributedDataParallel::mark_ready(std::size_t i, Stream after) {
  impl_->reducer.mark_ready(i, after);
}

void DistributedDataParallel::synchronize(Stream stream) { impl_->reducer.synchronize(stream); }

std::size_t DistributedDataParallel::bucket_count() const {
  return impl_->reducer.buckets().size();
}

}  // namespace ddprun
