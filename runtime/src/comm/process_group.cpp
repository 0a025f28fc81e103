// SPDX-License-Identifier: MIT
// What holds for every backend: argument checks, sequence numbers, deadlines and counts.
#include <ddprun/error.h>
#include <ddprun/process_group.h>

#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>

#include <fmt/core.h>

#include "base/fork_mark.h"
#include "comm/cpu/cpu_backend.h"
#include "comm/gpu_backend.h"

namespace ddprun {
namespace {

struct Counter {
  std::atomic<std::int64_t> operations{0};
  std::atomic<std::int64_t> bytes{0};
  std::atomic<std::int64_t> nanoseconds{0};

  GroupStats::Kind read() const {
    return {operations.load(), bytes.load(), std::chrono::nanoseconds(nanoseconds.load())};
  }
};

bool half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }
bool floating(DType dtype) { return dtype == DType::f32 || dtype == DType::f64 || half(dtype); }

std::string_view name_of(DeviceType type) { return type == DeviceType::cpu ? "cpu" : "cuda"; }

void require_arguments(const Store* store, int rank, int size, const ProcessGroupOptions& options) {
  if (size < 1) throw UsageError(fmt::format("[process_group] size {} must be at least 1", size));
  if (rank < 0 || rank >= size)
    throw UsageError(fmt::format("[process_group] rank {} must be in 0..{}", rank, size - 1));
  if (store == nullptr && size > 1)
    throw UsageError(fmt::format("[process_group] a group of {} ranks needs a store", size));
  if (options.backend != "auto" && options.backend != "cpu" && options.backend != "nccl")
    throw UsageError(fmt::format("[process_group] backend '{}' is unknown; use auto, cpu or nccl",
                                 options.backend));
  if (options.timeout <= std::chrono::milliseconds(0))
    throw UsageError(
        fmt::format("[process_group] timeout {} ms must be more than 0", options.timeout.count()));
}

template <class Impl>
Impl& in_use(const std::unique_ptr<Impl>& impl) {
  if (!impl) throw UsageError("[process_group] this group has been moved from; use the new one");
  return *impl;
}

/// For the calls that work with other ranks.
template <class Impl>
Impl& in_use(const std::unique_ptr<Impl>& impl, std::string_view kind) {
  Impl& used = in_use(impl);
  if (used.home.in_child())
    throw UsageError(
        fmt::format("[process_group] {}: this process was forked from rank {}'s; a group is not "
                    "usable in a forked child, make one of its own",
                    kind, used.rank));
  return used;
}

}  // namespace

struct ProcessGroup::Impl {
  Impl(std::shared_ptr<Store> group_store, int group_rank, int group_size,
       const ProcessGroupOptions& options)
      : store(std::move(group_store)),
        rank(group_rank),
        size(group_size),
        timeout(options.timeout) {
    require_arguments(store.get(), rank, size, options);
    host = make_cpu_backend(store.get(), rank, size, options);
    GpuBackend made = make_gpu_backend(store, *host, rank, size, options);
    gpu = std::move(made.backend);
    why_no_gpu = std::move(made.why_not);
  }

  /// That of the group's own device.
  Backend& backend() const { return gpu ? *gpu : *host; }

  Backend& backend_for(std::string_view kind, Device device) const {
    if (device == host->device()) return *host;
    if (gpu && device == gpu->device()) return *gpu;
    const auto where = fmt::format("[process_group] {}: the buffer is on {}:{}, but ", kind,
                                   name_of(device.type), device.index);
    if (gpu)
      throw UsageError(fmt::format("{}rank {} works on cuda:{}", where, rank, gpu->device().index));
    throw UsageError(fmt::format("{}this group has no nccl backend: {}", where, why_no_gpu));
  }

  /// The backend for a call with this buffer.
  Backend& require_buffer(std::string_view kind, const TensorView& buffer) const {
    Backend& backend = backend_for(kind, buffer.device);
    if (buffer.data == nullptr && buffer.numel > 0)
      throw UsageError(fmt::format("[process_group] {}: the buffer of {} elements has no data",
                                   kind, buffer.numel));
    if (size_of(buffer.dtype) == 0)
      throw UsageError(fmt::format("[process_group] {}: dtype {} is unknown", kind,
                                   static_cast<int>(buffer.dtype)));
    if (buffer.numel > std::numeric_limits<std::size_t>::max() / size_of(buffer.dtype))
      throw UsageError(
          fmt::format("[process_group] {}: {} elements are too many", kind, buffer.numel));
    return backend;
  }

  /// Numbers the call and hands it to the backend; throws what a blocking call failed with.
  template <class F>
  Work submit(Counter* counter, std::size_t bytes, bool on_gpu, Stream after, bool async_op,
              F call) {
    Operation operation;
    operation.async_op = async_op;
    operation.after = after;
    if (counter != nullptr) {
      counter->operations.fetch_add(1, std::memory_order_relaxed);
      counter->bytes.fetch_add(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
      operation.nanoseconds = &counter->nanoseconds;
    }
    Work work = [&] {
      const std::lock_guard lock(mutex);
      operation.sequence = ++sequence;
      operation.deadline = Deadline::after(timeout);
      operation.start = operation.deadline.is_never() ? Deadline::Clock::now()
                                                      : operation.deadline.at() - timeout;
      return call(std::as_const(operation));
    }();
    if (async_op) return work;
    if (on_gpu)
      work.wait_on(after);
    else
      work.wait();  // bounded by the operation's deadline
    return work;
  }

  std::shared_ptr<Store> store;
  int rank;
  int size;
  std::chrono::milliseconds timeout;
  ForkMark home;
  Counter all_reduce, broadcast, barrier;
  std::mutex mutex;            // calls reach the backend in the order of their numbers
  std::uint64_t sequence = 0;  // guarded by mutex
  std::unique_ptr<Backend> host;
  std::unique_ptr<Backend> gpu;  // null with the cpu backend; uses `host`
  std::string why_no_gpu;
};

ProcessGroup::ProcessGroup(std::shared_ptr<Store> store, int rank, int size,
                           ProcessGroupOptions options)
    : impl_(std::make_unique<Impl>(std::move(store), rank, size, options)) {}

ProcessGroup::ProcessGroup(ProcessGroup&&) noexcept = default;

ProcessGroup& ProcessGroup::operator=(ProcessGroup&& other) noexcept {
  if (this == &other) return *this;
  ProcessGroup old(std::move(*this));
  impl_ = std::move(other.impl_);
  return *this;
}

ProcessGroup::~ProcessGroup() {
  // A forked child has a copy of the group without its thread: the group is its parent's.
  if (impl_ && impl_->home.in_child()) static_cast<void>(impl_.release());
}

int ProcessGroup::rank() const { return in_use(impl_).rank; }
int ProcessGroup::size() const { return in_use(impl_).size; }
Device ProcessGroup::device() const { return in_use(impl_).backend().device(); }
std::string_view ProcessGroup::backend() const { return in_use(impl_).backend().name(); }

Work ProcessGroup::all_reduce(TensorView buffer, ReduceOp op, Stream after, bool async_op) {
  Impl& impl = in_use(impl_, "all_reduce");
  Backend& backend = impl.require_buffer("all_reduce", buffer);
  const bool on_gpu = buffer.device.type == DeviceType::cuda;
  if (op > ReduceOp::max)
    throw UsageError(
        fmt::format("[process_group] all_reduce: ReduceOp {} is unknown", static_cast<int>(op)));
  if (op == ReduceOp::avg && !floating(buffer.dtype))
    throw UsageError(
        fmt::format("[process_group] all_reduce: avg of {} would not be a whole number; use sum "
                    "and divide, or f64",
                    name_of(buffer.dtype)));
  if (half(buffer.dtype) && !on_gpu)
    throw UsageError(
        fmt::format("[process_group] all_reduce: {} is reduced on GPUs only; use f32 in CPU memory",
                    name_of(buffer.dtype)));
  return impl.submit(
      &impl.all_reduce, buffer.bytes(), on_gpu, after, async_op,
      [&](const auto& operation) { return backend.all_reduce(buffer, op, operation); });
}

Work ProcessGroup::broadcast(TensorView buffer, int root, Stream after, bool async_op) {
  Impl& impl = in_use(impl_, "broadcast");
  Backend& backend = impl.require_buffer("broadcast", buffer);
  const bool on_gpu = buffer.device.type == DeviceType::cuda;
  if (root < 0 || root >= impl.size)
    throw UsageError(fmt::format(
        "[process_group] broadcast: invalid root rank {}, must be in 0..{}", root, impl.size - 1));
  return impl.submit(
      &impl.broadcast, buffer.bytes(), on_gpu, after, async_op,
      [&](const auto& operation) { return backend.broadcast(buffer, root, operation); });
}

void ProcessGroup::barrier() {
  Impl& impl = in_use(impl_, "barrier");
  const auto meet = [&impl](Backend& backend, Counter* counter) {
    impl.submit(counter, 0, false, {}, false,
                [&backend](const auto& operation) { return backend.barrier(operation); });
  };
  if (impl.gpu) meet(*impl.gpu, nullptr);
  meet(*impl.host, &impl.barrier);
}

double ProcessGroup::mean(double value) {
  all_reduce(view(std::span(&value, 1)), ReduceOp::avg);
  return value;
}

std::shared_ptr<std::byte[]> ProcessGroup::allocate(std::size_t bytes, Device device) {
  Impl& impl = in_use(impl_, "allocate");
  Backend& backend = impl.backend_for("allocate", device);
  std::shared_ptr<std::byte[]> memory;
  impl.submit(nullptr, bytes, false, {}, false,
              [&](const auto& operation) { return backend.allocate(bytes, memory, operation); });
  return memory;
}

GroupStats ProcessGroup::stats() const {
  const Impl& impl = in_use(impl_);
  return {impl.all_reduce.read(), impl.broadcast.read(), impl.barrier.read()};
}

void ProcessGroup::abort(std::string_view reason) {
  in_use(impl_, "abort").backend().abort(reason);
}

void ProcessGroup::order_after(Stream stream) {
  in_use(impl_, "order_after").backend().order_after(stream);
}

void* ProcessGroup::native_comm() const { return in_use(impl_).backend().native_comm(); }

}  // namespace ddprun
