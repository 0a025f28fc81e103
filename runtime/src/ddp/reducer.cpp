// SPDX-License-Identifier: MIT
// The bookkeeping of one step; see reducer.h.
#include "ddp/reducer.h"

#include <ddprun/error.h>

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"

namespace ddprun {
namespace {

constexpr std::size_t kCacheLine = 64;

}  // namespace

Reducer::Reducer(ProcessGroup& group, std::vector<std::string> names, std::vector<Bucket> buckets)
    : group_(group),
      names_(std::move(names)),
      buckets_(std::move(buckets)),
      bucket_of_(names_.size()),
      begin_(buckets_.size()) {
  std::size_t bytes = 0;
  for (std::size_t k = 0; k < buckets_.size(); ++k) {
    begin_[k] = bytes;
    bytes += (buckets_[k].bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
    for (const Slice& slice : buckets_[k].slices) bucket_of_[slice.parameter] = k;
  }
  memory_ = group_.allocate(bytes, buckets_.front().device);
  begin_step();
}

Reducer::~Reducer() {
  if (std::ranges::all_of(launched_, &Work::done)) return;
  const auto attempt = [this](const auto& call) {
    try {
      call();
    } catch (const std::exception& e) {  // also of a forked child, which can do neither
      log(LogLevel::info, "ddp", "rank {}: {}", group_.rank(), e.what());
    }
  };
  attempt([this] {
    group_.abort(fmt::format("[ddp] rank {} left in the middle of a step", group_.rank()));
  });
  for (const Work& work : launched_) attempt([&work] { work.wait(); });
}

TensorView Reducer::memory(std::size_t k) const {
  const Bucket& bucket = buckets_[k];
  return {memory_.get() + begin_[k], bucket.bytes / size_of(bucket.dtype), bucket.dtype,
          bucket.device};
}

void Reducer::mark_ready(std::size_t i, Stream after) {
  if (i >= names_.size())
    throw UsageError(fmt::format("[ddp] mark_ready: rank {} has no parameter {}; it has {}",
                                 group_.rank(), i, names_.size()));
  if (marked_[i])
    throw UsageError(fmt::format(
        "[ddp] mark_ready: rank {} marked parameter {} '{}' twice in one step; mark each once, and "
        "call synchronize() at the end of every step",
        group_.rank(), i, names_[i]));
  marked_[i] = true;
  --missing_[bucket_of_[i]];
  auto& streams = written_on_[bucket_of_[i]];
  if (std::ranges::find(streams, after) == streams.end()) streams.push_back(after);
  launch_complete_buckets();
}

void Reducer::synchronize(Stream stream) {
  std::exception_ptr error;
  try {
    require_all_marked();
    // In CPU memory nothing is left to overlap with, and the communication thread would take longer
    // to wake up than a small all-reduce.
    launched_.push_back(
        launch(buckets_.size() - 1, buckets_.back().device.type != DeviceType::cpu));
  } catch (const Error&) {
    error = std::current_exception();
  }
  for (const Work& work : launched_) {
    try {
      work.wait_on(stream);
    } catch (const Error&) {
      if (!error) error = std::current_exception();
    }
  }
  begin_step();
  if (error) std::rethrow_exception(error);
}

void Reducer::launch_complete_buckets() {
  while (launched_.size() + 1 < buckets_.size() && missing_[launched_.size()] == 0)
    launched_.push_back(launch(launched_.size(), true));
}

// A bucket is ordered after every stream that a gradient of it was written on, not only after that
// of the mark which completed it.
Work Reducer::launch(std::size_t k, bool async_op) {
  auto& streams = written_on_[k];
  const Stream last = streams.empty() ? Stream{} : streams.back();
  for (const Stream& stream : streams)
    if (stream != last) group_.order_after(stream);
  return group_.all_reduce(memory(k), ReduceOp::avg, last, async_op);
}

void Reducer::require_all_marked() {
  std::vector<std::string> unmarked;
  for (std::size_t i = 0; i < names_.size(); ++i)
    if (!marked_[i]) unmarked.push_back(fmt::format("{} '{}'", i, names_[i]));
  if (unmarked.empty()) return;
  const std::string text = fmt::format(
      "[ddp] synchronize: rank {} did not mark {} {}; every rank marks every parameter in every "
      "step",
      group_.rank(), unmarked.size() == 1 ? "parameter" : "parameters", fmt::join(unmarked, ", "));
  group_.abort(text);  // the other ranks wait for its buckets
  throw UsageError(text);
}

void Reducer::begin_step() {
  launched_.clear();
  marked_.assign(names_.size(), false);
  missing_.clear();
  written_on_.assign(buckets_.size(), {});
  for (const Bucket& bucket : buckets_) missing_.push_back(bucket.slices.size());
}

}  // namespace ddprun
