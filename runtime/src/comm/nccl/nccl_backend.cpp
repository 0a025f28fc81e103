// SPDX-License-Identifier: MIT
// Puts operations on the comm stream, in order, with the events around them; see nccl_backend.h.
#include "comm/nccl/nccl_backend.h"

#include <ddprun/error.h>

#include <exception>
#include <optional>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "base/log.h"
#include "comm/nccl/comm_stream.h"
#include "comm/nccl/device_memory.h"
#include "comm/nccl/gpu_identity.h"
#include "comm/nccl/nccl_comm.h"
#include "comm/nccl/nccl_error.h"
#include "comm/nccl/nccl_work.h"
#include "comm/nccl/notices.h"
#include "comm/nccl/reduction.h"
#include "comm/nccl/watchdog.h"
#include "cuda/kernels.h"
#include "cuda/selected_device.h"

namespace ddprun {
namespace {

constexpr std::chrono::seconds kCleanEnd(5);

/// What a rank has when it is not alone.
struct Peers {
  Peers(const NcclRank& self, const std::shared_ptr<Store>& store, const CommSetup& setup,
        const std::function<void()>& look_around, Deadline deadline)
      : notices(store, setup.rank, setup.size),
        comm(*self.nccl, self.cuda, setup, look_around, deadline),
        watchdog(self, notices, comm) {}

  Notices notices;
  NcclCommunicator comm;
  Watchdog watchdog;
};

class NcclBackend final : public Backend {
 public:
  NcclBackend(NcclRank self, int size)
      : self_(std::move(self)),
        size_(size),
        stream_(std::make_shared<CommStream>(self_.cuda, self_.device, self_.failure)),
        flag_(allocate(sizeof(float))) {
    clear(flag_.get(), sizeof(float));
  }

  /// Blocks: until the GPUs of all ranks are connected. NCCL 2.22 and later connect in the first
  /// operation: what is wrong with a network is to show here, and not in a step of the program.
  void join(std::unique_ptr<Peers> peers, std::chrono::milliseconds timeout, Deadline deadline) {
    peers_ = std::move(peers);
    Operation first;
    first.deadline = deadline;
    first.start = deadline.is_never() ? Deadline::Clock::now() : deadline.at() - timeout;
    reduce_flag("set-up", first).wait();
  }

  ~NcclBackend() override {
    if (peers_) leave();
  }

  std::string_view name() const override { return "nccl"; }
  Device device() const override { return {DeviceType::cuda, self_.device}; }

  Work all_reduce(TensorView buffer, ReduceOp op, const Operation& operation) override {
    return run("all_reduce", operation, &operation.after, [&] {
      if (peers_ && buffer.numel > 0) reduce(buffer, plan_reduction(op, buffer.dtype, size_));
    });
  }

  Work broadcast(TensorView buffer, int root, const Operation& operation) override {
    return run("broadcast", operation, &operation.after, [&] {
      if (!peers_ || buffer.numel == 0) return;
      peers_->comm.call("ncclBroadcast", [&](NcclComm comm) {
        return self_.nccl->ncclBroadcast(buffer.data, buffer.data, buffer.numel,
                                         nccl_type(buffer.dtype), root, comm, stream_->get());
      });
    });
  }

  // Ordered after earlier operations, which are on the same stream; not after other streams.
  Work barrier(const Operation& operation) override { return reduce_flag("barrier", operation); }

  Work allocate(std::size_t bytes, std::shared_ptr<std::byte[]>& memory,
                const Operation& operation) override {
    return run("allocate", operation, nullptr, [&] {
      memory = allocate(bytes);
      clear(memory.get(), bytes);
    });
  }

  void order_after(Stream stream) override {
    const SelectedDevice selected(self_.cuda, self_.device);
    stream_->order_after("order_after", stream);
  }

  void abort(std::string_view reason) override {
    fail({FailureKind::aborted, self_.rank,
          fmt::format("[nccl] rank {} aborted the group: {}", self_.rank, reason)});
  }

  void* native_comm() const override { return peers_ ? peers_->comm.handle() : nullptr; }

 private:
  /// The Work of what `enqueue` puts on the stream, behind what is on `after` if that is not null.
  /// A failure is the group's, but for a stream that cannot be used: that is told before the
  /// operation has begun.
  template <class F>
  Work run(const char* name, const Operation& operation, const Stream* after, F enqueue) {
    auto work = std::make_shared<NcclWorkState>(
        self_.cuda, self_.device, Position{operation.sequence, name}, operation, self_.failure);
    if (self_.failure->known()) return Work(std::move(work));
    try {
      const SelectedDevice selected(self_.cuda, self_.device);
      if (after != nullptr) stream_->order_after(name, *after);
      if (peers_) peers_->watchdog.watch(work);
      enqueue();
      work->enqueued(stream_->record());
    } catch (const UsageError&) {
      throw;
    } catch (const NcclError& error) {  // of a call, and so there are peers
      peers_->watchdog.suspect(own_failure(name, operation, error),
                               time_for_culprit(error.result()));
      peers_->watchdog.wait_for_failure();
    } catch (const std::exception& error) {
      fail(own_failure(name, operation, error));
    }
    return Work(std::move(work));
  }

  Failure own_failure(const char* name, const Operation& operation, const std::exception& error) {
    return {FailureKind::failed, self_.rank,
            fmt::format("[nccl] {} #{}: rank {}: {}", name, operation.sequence, self_.rank,
                        error.what())};
  }

  std::shared_ptr<std::byte[]> allocate(std::size_t bytes) {
    return allocate_device_memory(self_.cuda, self_.device, bytes, stream_, self_.failure);
  }

  Work reduce_flag(const char* name, const Operation& operation) {
    const TensorView flag{flag_.get(), 1, DType::f32, device()};
    return run(name, operation, nullptr, [&] {
      if (peers_) reduce(flag, {kNcclSum});
    });
  }

  void reduce(TensorView buffer, const Reduction& reduction) {
    const auto all_reduce = [&](NcclRedOp op) {
      peers_->comm.call("ncclAllReduce", [&](NcclComm comm) {
        return self_.nccl->ncclAllReduce(buffer.data, buffer.data, buffer.numel,
                                         nccl_type(buffer.dtype), op, comm, stream_->get());
      });
    };
    if (reduction.halvings == 0)
      all_reduce(reduction.op);
    else
      with_premultiplied_sum(reduction.halvings, all_reduce);
    if (reduction.factor != 1) scale(buffer, reduction.factor, stream_->get());
  }

  template <class F>
  void with_premultiplied_sum(int halvings, F use) {
    NcclRedOp op = kNcclSum;
    peers_->comm.call("ncclRedOpCreatePreMulSum", [&](NcclComm comm) {
      std::uint16_t scalar = half_power(halvings);
      return self_.nccl->ncclRedOpCreatePreMulSum(&op, &scalar, kNcclFloat16,
                                                  kNcclScalarHostImmediate, comm);
    });
    use(op);
    peers_->comm.call("ncclRedOpDestroy",
                      [&](NcclComm comm) { return self_.nccl->ncclRedOpDestroy(op, comm); });
  }

  void clear(void* memory, std::size_t bytes) {
    require_cuda(self_.cuda, self_.cuda.cudaMemsetAsync(memory, 0, bytes, stream_->get()),
                 "cudaMemsetAsync");
  }

  void fail(const Failure& failure) {
    if (peers_) return peers_->watchdog.fail(failure);
    self_.failure->record(failure);
    self_.host.abort(failure.text);
  }

  void tell_leaving();
  void leave() noexcept;

  NcclRank self_;
  int size_;
  int exceptions_ = std::uncaught_exceptions();
  std::shared_ptr<CommStream> stream_;
  std::shared_ptr<std::byte[]> flag_;  // one f32 for barriers and the set-up
  std::unique_ptr<Peers> peers_;       // null when alone
};

void NcclBackend::tell_leaving() {
  try {
    peers_->notices.leave(peers_->watchdog.last_begun());
  } catch (const std::exception& error) {
    log(LogLevel::warning, "nccl", "rank {}: the other ranks are not told that it leaves: {}",
        self_.rank, error.what());
  }
}

// An operation that is under way is seen through, unless an exception destroys the group: then
// nobody knows whether the others make it too.
void NcclBackend::leave() noexcept try {
  const bool unwinding = std::uncaught_exceptions() > exceptions_;
  Watchdog& watchdog = peers_->watchdog;
  if (unwinding)
    watchdog.suspect({FailureKind::left, self_.rank,
                      fmt::format("[nccl] rank {} has left the group with operations under way: "
                                  "group destroyed by an exception",
                                  self_.rank)},
                     std::chrono::milliseconds(0));
  const bool failed_before = self_.failure->known();
  if (!failed_before) tell_leaving();
  watchdog.drain();
  if (self_.failure->known() && !failed_before && !unwinding)  // nobody waits for the Work any more
    log(LogLevel::error, "nccl",
        "rank {}: an operation has failed while the group was destroyed: {}", self_.rank,
        self_.failure->failure().text);
  const bool failed = self_.failure->known() || peers_->notices.read().failure;
  if (failed || unwinding) return;  // the communicator is aborted
  if (!peers_->comm.close(Deadline::after(kCleanEnd)))
    log(LogLevel::warning, "nccl", "rank {}: the communicator could not be closed within {} s",
        self_.rank, kCleanEnd.count());
} catch (const std::exception& error) {
  log(LogLevel::warning, "nccl", "rank {}: leaving the group: {}", self_.rank, error.what());
}

/// Throws what has ended the group while this rank was in its set-up, if anything has.
void look_around(Notices& notices, const NcclRank& self) {
  const auto error = self.host.peer_failure();
  if (error == nullptr) return;
  if (const auto failure = notices.told()) self.failure->record(*failure);
  if (self.failure->known()) self.failure->raise();
  std::rethrow_exception(error);
}

/// Fails the group with what this rank has met in the set-up, so that nobody waits for it.
[[noreturn]] void give_up(Notices& notices, const NcclRank& self, const Failure& own) {
  try {
    self.failure->record(notices.agree(own));
  } catch (const std::exception& error) {
    log(LogLevel::warning, "nccl", "the other ranks are not told of a failure: {}", error.what());
    self.failure->record(own);
  }
  self.host.abort(own.text);
  self.failure->raise();
}

std::unique_ptr<Backend> join_peers(const std::shared_ptr<Store>& store, const NcclRank& self,
                                    const NcclBackendOptions& options, Deadline deadline) {
  Notices notices(store, self.rank, options.size);
  const CommSetup setup{*store, self.rank, options.size, self.device, options.timeout};
  try {
    require_cuda(self.cuda, self.cuda.cudaSetDevice(options.device), "cudaSetDevice");
    prepare_kernels();
    auto backend = std::make_unique<NcclBackend>(self, options.size);
    const auto look = [&] { look_around(notices, self); };
    backend->join(std::make_unique<Peers>(self, store, setup, look, deadline), options.timeout,
                  deadline);
    return backend;
  } catch (const RemoteError&) {
    throw;
  } catch (const TimeoutError& error) {
    give_up(notices, self, {FailureKind::silent, self.rank, error.what()});
  } catch (const std::exception& error) {
    look_around(notices, self);  // the store may have gone with a rank that has died
    give_up(notices, self,
            {FailureKind::failed, self.rank,
             fmt::format("[nccl] set-up: rank {}: {}", self.rank, error.what())});
  }
}

}  // namespace

std::unique_ptr<Backend> make_nccl_backend(std::shared_ptr<Store> store, Backend& host,
                                           const NcclBackendOptions& options) {
  const auto deadline = Deadline::after(options.timeout);
  const CudaApi& cuda = cuda_api();
  const bool alone = options.size == 1;
  const NcclRank self{cuda,           alone ? nullptr : &nccl_api(),
                      host,           options.rank,
                      options.device, std::make_shared<GroupFailure>(options.rank)};
  if (!alone) {
    check_identities(*store, options.rank, options.size,
                     GpuIdentity::of_this_process(options.device), options.timeout, deadline);
    return join_peers(store, self, options, deadline);
  }
  require_cuda(cuda, cuda.cudaSetDevice(options.device), "cudaSetDevice");
  prepare_kernels();
  return std::make_unique<NcclBackend>(self, options.size);
}

}  // namespace ddprun
