// SPDX-License-Identifier: MIT
// Set-up, calls and end of a communicator; see nccl_comm.h.
#include "comm/nccl/nccl_comm.h"

#include <ddprun/error.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <fmt/format.h>

#include "base/env.h"
#include "base/log.h"
#include "comm/nccl/bounded_call.h"
#include "comm/nccl/nccl_error.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookAround(20);
constexpr milliseconds kAbort(5000);
// A call that takes longer than this once the group has failed is taken to hang.
constexpr milliseconds kCallUnderWay(1000);
constexpr std::chrono::microseconds kYield(500);

/// Sleeps a little longer every time: for answers that come in milliseconds or in seconds.
class BackOff {
 public:
  void pause() {
    std::this_thread::sleep_for(pause_);
    pause_ = std::min<std::chrono::microseconds>(2 * pause_, milliseconds(10));
  }

 private:
  std::chrono::microseconds pause_{50};
};

/// For calls, which NCCL hands to a thread of its own that mostly needs some microseconds: a sleep
/// would hold up the program longer than the call. Sleeps only when it takes long.
class ShortWait {
 public:
  void pause() {
    if (Deadline::Clock::now() < yield_until_)
      std::this_thread::yield();
    else
      back_off_.pause();
  }

 private:
  Deadline::Clock::time_point yield_until_ = Deadline::Clock::now() + kYield;
  BackOff back_off_;
};

// NCCL 2.26 can hang when set up without blocking
// (https://github.com/pytorch/pytorch/issues/153960), and the user's variable overrides what a
// program asks for.
bool must_block(const NcclApi& nccl) {
  return nccl.version / 100 == 226 || get_env("NCCL_COMM_BLOCKING") == "1";
}

std::string arrived_key(int rank) { return fmt::format("nccl/arrived/{}", rank); }

// The id belongs to a listener that NCCL opens in rank 0 without close-on-exec: it is made late,
// and once.
NcclUniqueId exchange_id(const NcclApi& nccl, const CommSetup& setup,
                         const std::function<void()>& look_around, Deadline deadline) {
  constexpr const char* kId = "nccl/unique_id";
  NcclUniqueId id{};
  if (setup.rank == 0) {
    if (const auto result = nccl.ncclGetUniqueId(&id); result != kNcclSuccess)
      throw DeviceError(fmt::format("[nccl] {}", describe(nccl, "ncclGetUniqueId", result)));
    setup.store.set(kId, std::string_view(id.internal, sizeof id.internal));
    return id;
  }
  while (!setup.store.check(std::vector<std::string>{kId})) {
    look_around();
    if (deadline.expired())
      throw TimeoutError(fmt::format("[nccl] set-up: rank 0 made no unique id within {} ms",
                                     setup.timeout.count()));
    std::this_thread::sleep_for(kLookAround);
  }
  const std::string text = setup.store.get(kId, deadline);
  std::memcpy(id.internal, text.data(), std::min(text.size(), sizeof id.internal));
  return id;
}

[[noreturn]] void throw_refused(const NcclApi& nccl, NcclResult result,
                                const std::function<void()>& look_around) {
  const std::string text = describe(nccl, "ncclCommInitRank", result);
  for (const auto until = Deadline::after(time_for_culprit(result)); !until.expired();) {
    look_around();
    std::this_thread::sleep_for(kLookAround);
  }
  throw NcclError(result, fmt::format("[nccl] {}", text));
}

void select_device(const CudaApi& cuda, int device, const char* thread) {
  if (const CudaError error = cuda.cudaSetDevice(device); error != kCudaSuccess)
    log(LogLevel::warning, "nccl", "{}: cudaSetDevice({}): {}", thread, device,
        cuda.cudaGetErrorString(error));
}

[[noreturn]] void throw_late(const CommSetup& setup) {
  std::vector<int> missing;
  for (int rank = 0; rank < setup.size; ++rank)
    if (!setup.store.check(std::vector<std::string>{arrived_key(rank)})) missing.push_back(rank);
  if (!missing.empty())
    throw TimeoutError(fmt::format("[nccl] set-up: rank(s) {} never arrived within {} ms (timeout)",
                                   fmt::join(missing, ", "), setup.timeout.count()));
  throw TimeoutError(
      fmt::format("[nccl] set-up: all ranks have called ncclCommInitRank, but it has not finished "
                  "within {} ms (timeout) on rank {}; {}",
                  setup.timeout.count(), setup.rank, network_advice()));
}

}  // namespace

NcclCommunicator::NcclCommunicator(const NcclApi& nccl, const CudaApi& cuda, const CommSetup& setup,
                                   const std::function<void()>& look_around, Deadline deadline)
    : nccl_(nccl), cuda_(cuda), device_(setup.device), blocking_(must_block(nccl)) {
  if (blocking_ && setup.rank == 0)
    log(LogLevel::warning, "nccl",
        "NCCL {} works with calls that block: a rank that fails while it is inside a call of NCCL "
        "cannot end that call; use "
        "another NCCL or unset NCCL_COMM_BLOCKING",
        nccl_version_text(nccl_.version));
  const bool clean = cuda_.cudaPeekAtLastError() == kCudaSuccess;
  try {
    start(setup, look_around, deadline);
    settle(setup, look_around, deadline);
  } catch (...) {
    abort(Deadline::after(kAbort));
    throw;
  }
  if (clean) cuda_.cudaGetLastError();  // NCCL 2.28.3 leaves one behind that is nobody's
}

NcclCommunicator::~NcclCommunicator() { abort(Deadline::after(kAbort)); }

// On a thread of its own also without blocking: before NCCL answers it looks for networks and GPUs.
void NcclCommunicator::start(const CommSetup& setup, const std::function<void()>& look_around,
                             Deadline deadline) {
  struct Started {
    NcclConfig config;
    NcclComm comm = nullptr;  // NCCL leaves it as it is when it refuses
    CudaError selected = kCudaSuccess;
    NcclResult result = kNcclInternalError;
  };
  const NcclUniqueId id = exchange_id(nccl_, setup, look_around, deadline);
  setup.store.set(arrived_key(setup.rank), "");
  const auto started = std::make_shared<Started>();
  started->config.blocking = blocking_ ? 1 : 0;
  BoundedCall init("nccl-init", [started, id, &nccl = nccl_, &cuda = cuda_, size = setup.size,
                                 rank = setup.rank, device = setup.device] {
    started->selected = cuda.cudaSetDevice(device);
    if (started->selected != kCudaSuccess) return;
    started->result = nccl.ncclCommInitRankConfig(&started->comm, size, id, rank, &started->config);
  });
  while (!init.finished_by(min(deadline, Deadline::after(kLookAround)))) {
    look_around();
    if (deadline.expired()) throw_late(setup);
  }
  require_cuda(cuda_, started->selected, "cudaSetDevice in the thread of ncclCommInitRank");
  if (started->result != kNcclSuccess && started->result != kNcclInProgress)
    throw_refused(nccl_, started->result, look_around);
  const std::lock_guard lock(mutex_);
  comm_ = started->comm;
}

void NcclCommunicator::settle(const CommSetup& setup, const std::function<void()>& look_around,
                              Deadline deadline) {
  BackOff back_off;
  auto next_look = Deadline::after(kLookAround);
  for (;;) {
    const auto state = async_error().value_or(kNcclSuccess);
    if (state == kNcclSuccess) return;
    if (state != kNcclInProgress) throw_refused(nccl_, state, look_around);
    if (next_look.expired()) {
      look_around();
      next_look = Deadline::after(kLookAround);
    }
    if (deadline.expired()) throw_late(setup);
    back_off.pause();
  }
}

NcclComm NcclCommunicator::handle() const {
  const std::lock_guard lock(mutex_);
  return comm_;
}

bool NcclCommunicator::ended() const { return handle() == nullptr; }

void NcclCommunicator::call(const char* name, const Call& one) {
  NcclComm comm = nullptr;
  {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return !busy_ || comm_ == nullptr; });
    if (comm_ == nullptr)
      throw DeviceError(fmt::format("[nccl] {}: the communicator has been aborted", name));
    busy_ = true;
    comm = comm_;
  }
  NcclResult result = one(comm);
  ShortWait wait;
  while (result == kNcclInProgress && !ended()) {  // the watchdog ends it at the deadline
    if (const NcclResult asked = nccl_.ncclCommGetAsyncError(comm, &result); asked != kNcclSuccess)
      result = asked;
    if (result == kNcclInProgress) wait.pause();
  }
  {
    const std::lock_guard lock(mutex_);
    busy_ = false;
  }
  idle_.notify_all();
  if (result != kNcclSuccess)
    throw NcclError(result, fmt::format("[nccl] {}", describe(nccl_, name, result)));
}

std::optional<NcclResult> NcclCommunicator::async_error() {
  const std::lock_guard lock(mutex_);
  if (busy_ || comm_ == nullptr) return std::nullopt;
  NcclResult state = kNcclSuccess;
  const NcclResult asked = nccl_.ncclCommGetAsyncError(comm_, &state);
  const NcclResult result = asked == kNcclSuccess ? state : asked;
  return result == kNcclSuccess ? std::nullopt : std::optional(result);
}

NcclCommunicator::Ended NcclCommunicator::end(Deadline patience) {
  std::unique_lock lock(mutex_);
  NcclComm comm = std::exchange(comm_, nullptr);
  idle_.notify_all();
  return {comm, idle_.wait_until(lock, patience.at(), [this] { return !busy_; })};
}

bool NcclCommunicator::close(Deadline deadline) {
  const auto [comm, idle] = end(Deadline::after(kCallUnderWay));
  if (comm == nullptr) return true;
  if (blocking_ && !idle) return false;
  const auto destroyed = std::make_shared<bool>(false);
  BoundedCall closing("nccl-close",
                      [=, comm = comm, &nccl = nccl_, &cuda = cuda_, device = device_] {
                        select_device(cuda, device, "nccl-close");
                        NcclResult state = nccl.ncclCommFinalize(comm);
                        BackOff back_off;
                        while (state == kNcclInProgress && !deadline.expired()) {
                          back_off.pause();
                          if (nccl.ncclCommGetAsyncError(comm, &state) != kNcclSuccess) break;
                        }
                        *destroyed = state == kNcclSuccess;
                        if (*destroyed)
                          nccl.ncclCommDestroy(comm);
                        else
                          nccl.ncclCommAbort(comm);
                      });
  return closing.finished_by(deadline) && *destroyed;
}

void NcclCommunicator::abort(Deadline deadline) try {
  const auto [comm, idle] = end(min(deadline, Deadline::after(kCallUnderWay)));
  if (comm == nullptr) return;
  if (blocking_ && !idle) {
    log(LogLevel::error, "nccl",
        "the communicator of cuda:{} is left behind: a thread is inside a call of NCCL, which must "
        "not be aborted when calls block",
        device_);
    return;
  }
  BoundedCall aborting("nccl-abort", [comm = comm, &nccl = nccl_, &cuda = cuda_, device = device_] {
    select_device(cuda, device, "nccl-abort");
    nccl.ncclCommAbort(comm);
  });
  if (!aborting.finished_by(deadline))
    log(LogLevel::error, "nccl",
        "ncclCommAbort of cuda:{} has not returned in time; it is left behind", device_);
} catch (const Error& error) {  // without a thread nothing bounds the call
  log(LogLevel::error, "nccl", "the communicator of cuda:{} is left behind: {}", device_,
      error.what());
}

}  // namespace ddprun
