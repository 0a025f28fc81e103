// SPDX-License-Identifier: MIT
// Fake NCCL: communicators, and the operations that are put on streams.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "doubles/fake_nccl.h"
#include "doubles/fake_nccl_segment.h"
#include "doubles/kept.h"

namespace ddprun::doubles {

/// Thrown by a wait that is not worth going on with.
struct Left {
  NcclResult result;
};

/// A user-made sum of products.
struct Scalar {
  NcclDataType type;
  double value;
  const void* on_device;  // null: `value`; else read when the operation runs
};

class Comm : public Kept {
 public:
  static constexpr std::uint32_t kMagic = 0x4e43434c;

  Comm(int its_rank, int its_size, int its_device, bool is_blocking)
      : rank(its_rank), size(its_size), device(its_device), blocking(is_blocking) {}

  /// Meets the other ranks. Blocks until all are there or it is aborted.
  NcclResult join(const NcclUniqueId& id);
  /// Runs fn now, or on a thread while `state` says in progress, as the communicator is blocking or
  /// not.
  NcclResult run(std::function<NcclResult()> fn);
  /// Waits in a collective or in init: throws Left when it is aborted; sees dead peers.
  void check_peers();
  /// Waits until what was issued has run, or failed.
  void flush();
  /// Gives everything up. No work of it runs afterwards.
  void end();

  const std::uint32_t magic = kMagic;
  const int rank, size, device;
  const bool blocking;
  std::shared_ptr<Segment> segment;  // null before join and after end
  std::atomic<NcclResult> state{kNcclInProgress};
  std::atomic<bool> aborted{false}, finalized{false}, ended{false};
  std::atomic<int> issued{0};   // and not yet run; the host adds relaxed, so that it learns nothing
  std::atomic<int> running{0};  // on streams
  std::atomic<std::uint64_t> operations{0};

  std::mutex mutex;
  std::thread helper;                          // guarded by mutex
  std::vector<std::optional<Scalar>> scalars;  // guarded by mutex
  CudaEvent last_launch = nullptr;             // guarded by mutex

 private:
  void join_helper();
  NcclResult introduce();
  NcclResult compare_members();
};

/// Null, with a warning, when it is not one or was destroyed.
Comm* find_comm(NcclComm handle, const char* call);

enum Kind { kAllReduce, kBroadcast, kReduce, kAllGather, kReduceScatter };

struct Operation {
  Kind kind;
  const void* in;
  void* out;
  std::size_t count;
  NcclDataType type;
  NcclRedOp op = 0;
  int root = 0;
  Scalar scalar = {};
};

const char* name_of(Kind kind);
/// On a stream: one operation of all ranks.
void execute(Comm& comm, const Operation& operation);

/// For ncclGroupEnd, or now when no group is open.
NcclResult later_or_now(std::function<NcclResult()> init);

}  // namespace ddprun::doubles
