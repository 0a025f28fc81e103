// SPDX-License-Identifier: MIT
// Moves the data of collectives. ProcessGroup has checked the arguments, numbered the operation and
// fixed its deadline before it calls one of these; a Backend does nothing else than to run it.
#pragma once

#include <ddprun/deadline.h>
#include <ddprun/export.h>
#include <ddprun/stream.h>
#include <ddprun/tensor_view.h>
#include <ddprun/work.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string_view>

namespace ddprun {

enum class ReduceOp : std::uint8_t { sum, avg, min, max };

/// What ProcessGroup decided about one call.
struct Operation {
  std::uint64_t sequence = 0;           // counts from 1, the same on all ranks
  Deadline::Clock::time_point start{};  // when it was called
  Deadline deadline = Deadline::never();
  bool async_op = false;  // false: the caller waits for the Work at once
  Stream after{};
  /// Where the backend adds the time that a thread spends in the operation; null: nowhere.
  std::atomic<std::int64_t>* nanoseconds = nullptr;
};

/// A backend orders its operations itself: on a thread, or on a stream of the device.
/// Threads: called by one thread at a time, in the order of Operation::sequence; abort() from any.
/// Throws:  nothing for what other ranks do: that is stored in the Work. After the first error
///          every later Work fails with the same one.
class DDPRUN_API Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  /// What is pending fails with "group destroyed"; other ranks see this one leave.
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;
  virtual Device device() const = 0;
  virtual Work all_reduce(TensorView buffer, ReduceOp op, const Operation& operation) = 0;
  virtual Work broadcast(TensorView buffer, int root, const Operation& operation) = 0;
  virtual Work barrier(const Operation& operation) = 0;
  /// Memory from which collectives are fastest. Collective: all ranks, same size, same order.
  /// `memory` is set when the Work is done.
  virtual Work allocate(std::size_t bytes, std::shared_ptr<std::byte[]>& memory,
                        const Operation& operation) = 0;
  /// Later operations are ordered after what is on `stream` now; not a collective.
  virtual void order_after(Stream) {}
  /// Fails every pending and later operation, on this rank and soon on all others.
  virtual void abort(std::string_view reason) = 0;
  /// What has ended the group, as far as it can be seen without waiting for anybody; null while all
  /// is well. Threads: one at a time, beside the one that runs operations.
  virtual std::exception_ptr peer_failure() { return nullptr; }
  /// The handle of the library below (ncclComm_t), for calls that ddprun does not make; else null.
  virtual void* native_comm() const { return nullptr; }
};

}  // namespace ddprun
