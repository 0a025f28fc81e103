// SPDX-License-Identifier: MIT
// Averages gradients across ranks while backward is still running.
// Paper: Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB
// 2020. https://docs.pytorch.org/docs/stable/notes/ddp.html
#pragma once

#include <ddprun/deadline.h>
#include <ddprun/export.h>
#include <ddprun/process_group.h>
#include <ddprun/stream.h>
#include <ddprun/tensor_view.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace ddprun {

struct DdpOptions {
  /// Units: bytes. A bucket is closed by the parameter that makes it reach its limit.
  std::size_t bucket_bytes = std::size_t{25} << 20;
  /// Limit of the first bucket to be reduced; small, so that communication starts early. Never more
  /// than bucket_bytes.
  std::size_t first_bucket_bytes = std::size_t{1} << 20;
  /// The order in which backward finishes parameters, if it is not the reverse of `parameters`.
  std::vector<std::size_t> order{};
  /// On a GPU: where the parameters' values were written. The constructor is ordered after it.
  Stream stream{};
};

/// Threads: mark_ready and synchronize by one thread at a time; communication runs on the group's
///          own thread.
/// Owns:    the gradient memory; the group and the parameters' values must outlive it. Destruction
///          while all-reduces are under way aborts the group.
class DDPRUN_API DistributedDataParallel {
 public:
  /// Checks that all ranks have the same parameters (names, shapes, dtypes, in the same order),
  /// gives every rank the values of rank 0, allocates the buckets, and points every
  /// parameters[i].grad into them, zeroed; what grad was before does not matter. Afterwards nobody
  /// zeroes gradients: backward overwrites them, or Sgd::zero_grad() does it before. To accumulate
  /// over several backward passes, mark_ready only in the last.
  /// Shape:  all parameters on one device: the GPU of the group, or in CPU memory.
  /// Blocks: until all ranks have done so.
  /// Throws: UsageError with the same text on all ranks, naming the ranks and the first parameter
  ///         that differs; UsageError when a parameter's own fields do not fit together.
  DistributedDataParallel(ProcessGroup& group, std::span<Parameter> parameters,
                          DdpOptions options = {});
  DistributedDataParallel(DistributedDataParallel&&) noexcept;
  DistributedDataParallel& operator=(DistributedDataParallel&&) noexcept;
  ~DistributedDataParallel();

  /// Where backward writes the gradient of parameter i; fixed for life. parameters[i].grad is the
  /// same until another DistributedDataParallel takes the parameters, and is not to be used after
  /// this one is gone.
  TensorView gradient(std::size_t i) const;

  /// Backward has finished the gradient of parameter i. When a bucket and all before it are
  /// complete, its all-reduce starts in the background; that of the last bucket is synchronize()'s.
  /// Do not touch the gradient afterwards until synchronize() has returned; on a GPU whatever uses
  /// or overwrites it later, also the next backward, must be on the stream given to synchronize(),
  /// or ordered after that by an event. `after`: the stream that writes the gradient; different
  /// ones may be given for different parameters. Throws: UsageError when i is out of range or was
  /// already marked in this step.
  void mark_ready(std::size_t i, Stream after = {});

  /// Ends the step: waits until every gradient holds the mean over all ranks; on a GPU, only makes
  /// `stream` wait for that: launch the optimizer on it.
  /// Blocks: the host on the CPU, not at all on a GPU.
  /// Throws: UsageError naming every parameter that was not marked, and this rank, before it waits
  ///         (the group is aborted, so the other ranks fail with the same text); the error of a
  ///         failed all-reduce.
  void synchronize(Stream stream = {});

  std::size_t bucket_count() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
