// SPDX-License-Identifier: MIT
// Ranks that run collective operations together. Semantics:
// https://docs.pytorch.org/docs/stable/distributed.html#collective-functions
#pragma once

#include <ddprun/backend.h>
#include <ddprun/deadline.h>
#include <ddprun/export.h>
#include <ddprun/store.h>
#include <ddprun/stream.h>
#include <ddprun/tensor_view.h>
#include <ddprun/work.h>
#include <ddprun/worker_env.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace ddprun {

struct ProcessGroupOptions {
  /// "nccl": tensors in GPU memory as well as in CPU memory; "cpu": the latter only; "auto": nccl
  /// if every rank sees a GPU and the plugin is there, else cpu, with a warning when something says
  /// that GPUs were meant. Two ranks on one GPU are an error. A program whose tensors are on GPUs
  /// asks for nccl.
  std::string backend = "auto";
  /// Longest that one operation may take, counted from its call; also of the group's set-up.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  /// This rank's GPU, an index into what CUDA_VISIBLE_DEVICES shows; init_process_group takes
  /// LOCAL_RANK. It is selected in the calling thread.
  std::optional<int> device = std::nullopt;
};

/// What a group has done so far, on this rank.
/// Units: bytes of the buffers handed over; time that a thread spent inside operations, waiting for
///        other ranks included. Operations on a GPU take no thread's time and are not timed.
struct GroupStats {
  struct Kind {
    std::int64_t operations = 0;
    std::int64_t bytes = 0;
    std::chrono::nanoseconds time{0};
  };
  Kind all_reduce;
  Kind broadcast;
  Kind barrier;
};

/// Every rank makes the same calls in the same order. A rank that calls something else, dies,
/// leaves or stays silent past the deadline is named in the error of every rank that waits for it;
/// after the first error every later operation of the group fails with the same text.
///
/// Tensors may be in CPU memory or, with the nccl backend, in that of device(). A call on GPU
/// memory takes the stream it is ordered after, runs on a stream of the group, and never blocks the
/// host: without async_op, `after` itself continues after the result; with it, Work::wait_on() says
/// which stream does. A stream that is being captured in a CUDA graph is a UsageError.
///
/// Threads: calls may come from any thread, but all ranks must make them in the same order. A call
///          that blocks keeps those of other threads waiting. In a forked child every operation
///          throws UsageError, and its copy of the group does nothing when it is destroyed.
class DDPRUN_API ProcessGroup {
 public:
  /// Blocks: until all `size` ranks have arrived in the store, at most options.timeout.
  /// Owns:   the store, until destruction; with the nccl backend ranks tell each other of failures
  ///         through it, else it is used during construction only. It serves one group: give each
  ///         its own with_prefix(store, name). Null will do for one rank.
  /// Throws: TimeoutError naming the ranks that never arrived; UsageError when ranks disagree on
  ///         size, backend or machine, or have the same number; DeviceError, ConnectionError.
  ProcessGroup(std::shared_ptr<Store> store, int rank, int size, ProcessGroupOptions options = {});
  ProcessGroup(ProcessGroup&&) noexcept;
  ProcessGroup& operator=(ProcessGroup&&) noexcept;
  /// Other ranks see this one leave. In CPU memory, pending operations fail with "group destroyed".
  /// On a GPU they are seen through, up to their deadline, and a failure then is logged; but when
  /// an exception destroys the group they fail at once.
  ~ProcessGroup();

  int rank() const;
  int size() const;
  /// The GPU of this rank with the nccl backend, else the CPU. A tensor that is neither there nor
  /// in CPU memory is a UsageError.
  Device device() const;
  std::string_view backend() const;

  /// Replaces `buffer` on all ranks by its reduction over all ranks. Elements are combined in rank
  /// order by one rank each, so all ranks and all runs have the same bits. Integers wrap on sum.
  /// For floating point a NaN propagates through every op. On GPUs order and NaN are NCCL's, and
  /// avg of a 16-bit type is the sum times 1/size in f32 unless size is a power of two.
  /// Shape:  same numel and dtype on all ranks; avg needs a floating dtype. On GPUs NCCL does not
  ///         notice a difference between ranks: it hangs or gives wrong numbers.
  /// Blocks: until the result is in `buffer`; with async_op it returns at once and the buffer must
  ///         stay untouched until the Work is done. On GPU memory: never; see above.
  /// Throws: UsageError at once for arguments that cannot be right locally. Here without async_op,
  ///         from Work::wait() with it: RemoteError naming the rank that died, left, called
  ///         something else or aborted; TimeoutError naming one that stayed silent. Then the
  ///         contents of `buffer` are undefined.
  Work all_reduce(TensorView buffer, ReduceOp op = ReduceOp::sum, Stream after = {},
                  bool async_op = false);

  /// Copies `buffer` of rank `root` to all ranks. Otherwise as all_reduce.
  Work broadcast(TensorView buffer, int root, Stream after = {}, bool async_op = false);

  /// Returns when all ranks have called it and all earlier operations of this rank are done.
  void barrier();

  /// The mean of one number over all ranks.
  double mean(double value);

  /// Zeroed memory on `device`, this rank's GPU or the CPU, from which collectives are fastest: in
  /// CPU memory, peers can read it, so that they need no copies. Collective: all ranks ask for the
  /// same size in the same order.
  /// Owns:   the caller; it may outlive the group (it is then ordinary memory).
  std::shared_ptr<std::byte[]> allocate(std::size_t bytes, Device device = {});

  /// Later operations on GPU memory are ordered after what is on `stream` now, besides the stream
  /// that each of them is given. Not a collective: it does nothing on other ranks.
  void order_after(Stream stream);
  /// The ncclComm_t behind operations on GPU memory; null without one (the cpu backend, one rank).
  /// Who calls NCCL with it does so on all ranks, while no operation of this group is under way. It
  /// does not block: a call may answer ncclInProgress, and then ncclCommGetAsyncError is to be
  /// asked until it does not; nothing else may be called before.
  void* native_comm() const;

  GroupStats stats() const;

  /// Fails every pending and later operation here and, within two seconds, on all other ranks.
  void abort(std::string_view reason);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Joins the job that `env` describes: finds the store, then makes the group of all its ranks.
/// World size 1 needs no store. Under ddprun the launcher hosts the store and every rank is a
/// client; without it (env.agent_store false) rank 0 hosts it on master_addr:master_port and, on
/// destruction of the group, waits for the other ranks to have left, at most 10 s and at most
/// options.timeout. It may be called again, on all ranks, for a further group.
/// Throws: as the constructor; ConnectionError when the store cannot be reached; DeviceError with
///         backend "nccl" when this rank has no GPU: "LOCAL_RANK 2 but 2 visible devices".
DDPRUN_API ProcessGroup init_process_group(const WorkerEnv& env, ProcessGroupOptions options = {});

}  // namespace ddprun
