// SPDX-License-Identifier: MIT
// Fake NCCL: the life of a communicator.
#include "doubles/fake_nccl_comm.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <unistd.h>

#include "doubles/environment.h"
#include "doubles/fake_cudart.h"
#include "doubles/fake_nccl_fault.h"
#include "doubles/futex.h"

namespace ddprun::doubles {
namespace {

bool peers_are_watched() { return environment_int("FAKE_NCCL_PEERWATCH", 1) != 0; }

std::uint64_t host_hash() {
  const char* name = std::getenv("NCCL_HOSTID");
  return std::hash<std::string>{}(name ? name : "this host");
}

std::string rank_text(int rank) { return "rank " + std::to_string(rank); }

/// A pause between two looks at something that no one announces.
void rest() { std::this_thread::sleep_for(std::chrono::microseconds(200)); }

bool wants_blocking(const NcclConfig* config) {
  const char* asked = std::getenv("NCCL_COMM_BLOCKING");
  if (asked && *asked) return std::atoi(asked) != 0;
  return !config || config->blocking != 0;  // undefined: blocking
}

/// Only the part of the caller's struct that it says is there.
[[maybe_unused]] NcclResult read(const NcclConfig* from, NcclConfig& config) {
  if (!from) return kNcclSuccess;
  if (from->magic != config.magic)
    return warn(kNcclInvalidArgument,
                "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
  std::memcpy(static_cast<void*>(&config), from, std::min(from->size, sizeof config));
  return kNcclSuccess;
}

/// Makes a communicator whose members meet by `id`, at once or at the end of the group.
NcclResult make(NcclComm* handle, int size, const NcclUniqueId& id, int rank, bool blocking) {
  if (!handle || size < 1 || size > kMaxRanks || rank < 0 || rank >= size)
    return warn(kNcclInvalidArgument,
                "Invalid rank requested : " + std::to_string(rank) + "/" + std::to_string(size));
  const Fault fault = planned_fault(rank, "ncclCommInitRank");
  if (fault.is("ret")) return warn(fault.argument, "a fault of the plan");
  int device = 0;
  if (cudaGetDevice(&device) != kCudaSuccess)
    return warn(kNcclUnhandledCudaError, "Cuda failure in cudaGetDevice");
  auto* const comm = make_kept<Comm>(rank, size, device, blocking);
  *handle = comm;
  const auto init = [comm, id, fault] {
    act(fault);
    while (fault.is("never") && !comm->aborted) rest();
    return comm->aborted ? kNcclInternalError : comm->join(id);
  };
  if (!blocking) return comm->run(init);
  return later_or_now([comm, init] { return comm->run(init); });
}

}  // namespace

Comm* find_comm(NcclComm handle, const char* call) {
  auto* const comm = static_cast<Comm*>(handle);
  if (comm && comm->magic == Comm::kMagic && !comm->ended) return comm;
  warn(kNcclInvalidArgument, std::string(call) + " : comm argument is NULL, or was destroyed");
  return nullptr;
}

NcclResult Comm::run(std::function<NcclResult()> fn) {
  if (blocking) {
    const NcclResult result = fn();
    state.store(result);
    return result;
  }
  state.store(kNcclInProgress);
  join_helper();
  const std::lock_guard lock(mutex);
  helper =
      std::thread([this, fn = std::move(fn)] { state.store(fn(), std::memory_order_release); });
  return kNcclInProgress;
}

void Comm::join_helper() {
  std::thread last;
  {
    const std::lock_guard lock(mutex);
    last.swap(helper);
  }
  if (last.joinable()) last.join();
}

void Comm::check_peers() {
  if (aborted) throw Left{kNcclInternalError};
  thread_local auto next_look = std::chrono::steady_clock::time_point();
  const auto now = std::chrono::steady_clock::now();
  if (!peers_are_watched() || now < next_look) return;
  next_look = now + std::chrono::milliseconds(10);
  for (int peer = 0; peer < size; ++peer) {
    if (!segment->dead(peer)) continue;
    NcclResult none = kNcclSuccess;
    if (state.compare_exchange_strong(none, kNcclRemoteError, std::memory_order_relaxed))
      warn(kNcclRemoteError, rank_text(rank) + ": the process of " + rank_text(peer) + " is gone");
    if (none == kNcclInProgress) throw Left{kNcclRemoteError};
  }
}

NcclResult Comm::introduce() {
  Member& self = segment->member(rank);
  int unset = 0;
  if (!segment->header().size.compare_exchange_strong(unset, size) && unset != size)
    return warn(kNcclInvalidUsage, rank_text(rank) + " asks for " + std::to_string(size) +
                                       " ranks, another one for " + std::to_string(unset));
  if (self.pid.exchange(::getpid()) != 0)
    return warn(kNcclInvalidUsage,
                rank_text(rank) + " was there before: a unique id is used twice");
  self.version = FAKE_NCCL_VERSION;
  self.host = host_hash();
  if (cudaDeviceGetPCIBusId(self.bus, sizeof self.bus, device) != kCudaSuccess)
    return warn(kNcclUnhandledCudaError, "Cuda failure in cudaDeviceGetPCIBusId");
  segment->header().joined.fetch_add(1);
  futex_wake_all(segment->header().joined);
  return kNcclSuccess;
}

NcclResult Comm::compare_members() {
  const Member& self = segment->member(rank);
  for (int peer = 0; peer < size; ++peer) {
    const Member& other = segment->member(peer);
    if (other.version != self.version)
      return warn(kNcclInvalidUsage, "Mismatched NCCL version detected : " + rank_text(rank) + " " +
                                         std::to_string(self.version) + " " + rank_text(peer) +
                                         " " + std::to_string(other.version));
    const bool same = other.host == self.host && std::strcmp(other.bus, self.bus) == 0;
    if (peer != rank && same && environment_int("NCCL_MULTI_RANK_GPU_ENABLE", 0) == 0)
      return warn(kNcclInvalidUsage, "Duplicate GPU detected : " + rank_text(rank) + " and " +
                                         rank_text(peer) + " both on CUDA device " + self.bus);
  }
  return kNcclSuccess;
}

NcclResult Comm::join(const NcclUniqueId& id) {
  segment = Segment::open(id, size);
  if (!segment) return warn(kNcclRemoteError, "cannot reach the process that made the unique id");
  Header& header = segment->header();
  const auto check = [&] {
    check_peers();
    if (header.init_failed) throw Left{kNcclRemoteError};
  };
  try {
    NcclResult result = introduce();
    while (result == kNcclSuccess && header.joined < static_cast<std::uint32_t>(size)) {
      check();
      futex_wait(header.joined, header.joined);
    }
    if (result == kNcclSuccess) result = compare_members();
    if (result != kNcclSuccess) {
      header.init_failed = true;
      return result;
    }
    Segment::drop_id(id);
    segment->pass(header.of_hosts, check);
    return kNcclSuccess;
  } catch (const Left& left) {
    return left.result;
  }
}

void Comm::flush() {
  while (issued > 0 && !aborted) rest();
}

void Comm::end() {
  join_helper();
  aborted = true;
  while (running > 0) rest();
  segment.reset();
  ended = true;
}

}  // namespace ddprun::doubles

using namespace ddprun::doubles;
using namespace ddprun;

int ddprun_test_double() { return 1; }

NcclResult ncclGetVersion(int* version) {
  if (!version) return kNcclInvalidArgument;
  *version = FAKE_NCCL_VERSION;
  return kNcclSuccess;
}

NcclResult ncclGetUniqueId(NcclUniqueId* id) {
  if (!id) return warn(kNcclInvalidArgument, "ncclGetUniqueId : id argument is NULL");
  const Fault fault = planned_fault(0, "ncclGetUniqueId");
  act(fault);
  if (fault.is("ret")) return warn(fault.argument, "a fault of the plan");
  *id = Segment::make_id();
  return kNcclSuccess;
}

const char* ncclGetErrorString(NcclResult result) {
  static const char* const texts[] = {
      "no error",
      "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
      "unhandled system error (run with NCCL_DEBUG=INFO for details)",
      "internal error - please report this issue to the NCCL developers",
      "invalid argument (run with NCCL_DEBUG=WARN for details)",
      "invalid usage (run with NCCL_DEBUG=WARN for details)",
      "remote process exited or there was a network error",
      "NCCL operation in progress"};
  return result >= 0 && result <= kNcclInProgress ? texts[result] : "unknown result code";
}

NcclResult ncclCommInitRank(NcclComm* comm, int size, NcclUniqueId id, int rank) {
  return make(comm, size, id, rank, wants_blocking(nullptr));
}

NcclResult ncclCommGetAsyncError(NcclComm handle, NcclResult* error) {
  Comm* const comm = find_comm(handle, __func__);
  if (!comm || !error) return kNcclInvalidArgument;
  const Fault fault = planned_fault(comm->rank, __func__);
  act(fault);
  if (fault.is("ret")) return warn(fault.argument, "a fault of the plan");
  *error = comm->state.load(std::memory_order_acquire);
  return kNcclSuccess;
}

NcclResult ncclCommDestroy(NcclComm handle) {
  if (!handle) return kNcclSuccess;
  Comm* const comm = find_comm(handle, __func__);
  if (!comm) return kNcclInvalidArgument;
  const Fault fault = planned_fault(comm->rank, __func__);
  act(fault);
  if (fault.is("ret")) return warn(fault.argument, "a fault of the plan");
  comm->flush();
  comm->end();
  return kNcclSuccess;
}

NcclResult ncclCommAbort(NcclComm handle) {
  if (!handle) return kNcclSuccess;
  Comm* const comm = find_comm(handle, __func__);
  if (!comm) return kNcclInvalidArgument;
  const Fault fault = planned_fault(comm->rank, __func__);
  act(fault);
  while (fault.is("abort_hang")) rest();
  comm->aborted = true;
  comm->end();
  return fault.is("ret") ? warn(fault.argument, "a fault of the plan") : kNcclSuccess;
}

NcclResult ncclCommCount(NcclComm handle, int* count) {
  const Comm* const comm = find_comm(handle, __func__);
  if (!comm || !count) return kNcclInvalidArgument;
  *count = comm->size;
  return kNcclSuccess;
}

NcclResult ncclCommCuDevice(NcclComm handle, int* device) {
  const Comm* const comm = find_comm(handle, __func__);
  if (!comm || !device) return kNcclInvalidArgument;
  *device = comm->device;
  return kNcclSuccess;
}

NcclResult ncclCommUserRank(NcclComm handle, int* rank) {
  const Comm* const comm = find_comm(handle, __func__);
  if (!comm || !rank) return kNcclInvalidArgument;
  *rank = comm->rank;
  return kNcclSuccess;
}

#if FAKE_NCCL_VERSION >= 21400
NcclResult ncclCommInitRankConfig(NcclComm* comm, int size, NcclUniqueId id, int rank,
                                  NcclConfig* given) {
  NcclConfig config;
  const NcclResult result = read(given, config);
  return result != kNcclSuccess ? result : make(comm, size, id, rank, wants_blocking(&config));
}

NcclResult ncclCommFinalize(NcclComm handle) {
  Comm* const comm = find_comm(handle, __func__);
  if (!comm) return kNcclInvalidArgument;
  const Fault fault = planned_fault(comm->rank, __func__);
  act(fault);
  if (fault.is("ret")) return warn(fault.argument, "a fault of the plan");
  if (const NcclResult bad = comm->state) return bad;
  if (comm->finalized.exchange(true))
    return warn(kNcclInvalidArgument, "ncclCommFinalize : called twice");
  const bool hang = fault.is("hang");
  return comm->run([comm, hang] {
    while (hang && !comm->aborted) rest();
    comm->flush();
    return kNcclSuccess;
  });
}
#endif

#if FAKE_NCCL_VERSION >= 21800
namespace {

/// What all ranks of a communicator that is split ask for; the part this rank is in joins.
NcclResult split(Comm& parent, int color, int key, NcclComm* handle, bool blocking) {
  Segment& segment = *parent.segment;
  const auto check = [&] { parent.check_peers(); };
  Member& self = segment.member(parent.rank);
  self.color = color;
  self.key = key;
  self.part = Segment::make_id();
  const NcclUniqueId own = self.part;
  segment.pass(segment.header().of_hosts, check);
  std::vector<std::pair<int, int>> members;  // key, rank
  for (int rank = 0; rank < parent.size; ++rank)
    if (segment.member(rank).color == color) members.emplace_back(segment.member(rank).key, rank);
  std::sort(members.begin(), members.end());
  const int leader = members.front().second;
  const NcclUniqueId id = segment.member(leader).part;
  if (leader != parent.rank || color < 0) Segment::drop_id(own);
  segment.pass(segment.header().of_hosts, check);
  if (color < 0) return kNcclSuccess;
  const auto place = std::find(members.begin(), members.end(), std::pair(key, parent.rank));
  return make(handle, static_cast<int>(members.size()), id,
              static_cast<int>(place - members.begin()), blocking);
}

}  // namespace

NcclResult ncclCommSplit(NcclComm handle, int color, int key, NcclComm* part, NcclConfig* given) {
  Comm* const parent = find_comm(handle, __func__);
  if (!parent || !part) return kNcclInvalidArgument;
  if (const NcclResult bad = parent->state) return bad;
  NcclConfig config;
  config.blocking = parent->blocking ? 1 : 0;  // inherited
  const NcclResult result = read(given, config);
  if (result != kNcclSuccess) return result;
  *part = nullptr;
  try {
    return split(*parent, color, key, part, wants_blocking(&config));
  } catch (const Left& left) {
    return left.result;
  }
}
#endif

#if FAKE_NCCL_VERSION >= 21900
NcclResult ncclMemAlloc(void** pointer, std::size_t bytes) {
  const CudaError error = cudaMalloc(pointer, bytes);
  return error == kCudaSuccess ? kNcclSuccess
                               : warn(kNcclUnhandledCudaError, "Cuda failure in cudaMalloc");
}

NcclResult ncclMemFree(void* pointer) {
  const CudaError error = cudaFree(pointer);
  return error == kCudaSuccess ? kNcclSuccess
                               : warn(kNcclUnhandledCudaError, "Cuda failure in cudaFree");
}

NcclResult ncclCommRegister(NcclComm handle, void* pointer, std::size_t bytes,
                            void** registration) {
  if (!find_comm(handle, __func__) || !registration) return kNcclInvalidArgument;
  if (double_cuda_device_of(pointer) < 0 || double_cuda_room(pointer) < bytes)
    return warn(kNcclInvalidArgument, "ncclCommRegister : not device memory of that size");
  *registration = pointer;
  return kNcclSuccess;
}

NcclResult ncclCommDeregister(NcclComm handle, void* registration) {
  return find_comm(handle, __func__) && registration ? kNcclSuccess : kNcclInvalidArgument;
}
#endif
