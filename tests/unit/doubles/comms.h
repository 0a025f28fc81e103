// SPDX-License-Identifier: MIT
// Communicators of the fake NCCL for its tests: ranks are threads, each with a device of its own.
#pragma once

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "doubles/fake_nccl.h"
#include "support/run_ranks.h"
#include "unit/doubles/device.h"

namespace ddprun::test {

inline void ok_nccl(NcclResult result) {
  if (result != kNcclSuccess) throw std::runtime_error(ncclGetErrorString(result));
}

struct Rank {
  int rank, size;
  NcclComm comm;
  CudaStream stream;
};

inline NcclUniqueId make_id() {
  NcclUniqueId id;
  ok_nccl(ncclGetUniqueId(&id));
  return id;
}

inline NcclResult async_error(NcclComm comm) {
  NcclResult error = -1;
  ok_nccl(ncclCommGetAsyncError(comm, &error));
  return error;
}

/// The first asynchronous result that is not `from`, or `from` after ten seconds.
inline NcclResult await_change(NcclComm comm, NcclResult from) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  NcclResult error = from;
  while (error == from && std::chrono::steady_clock::now() < limit) {
    std::this_thread::yield();
    error = async_error(comm);
  }
  return error;
}

inline NcclConfig non_blocking() {
  NcclConfig config;
  config.blocking = 0;
  return config;
}

/// Runs fn(Rank) on n threads; what each threw. The communicators are left as they are.
template <class Fn>
std::vector<std::string> errors_of_comms(int n, Fn fn) {
  const NcclUniqueId id = make_id();
  return errors_of_ranks(n, [&](int rank) {
    ok(cudaSetDevice(rank));
    Rank self = {rank, n, nullptr, make_stream()};
    NcclConfig config = non_blocking();
    if (ncclCommInitRankConfig(&self.comm, n, id, rank, &config) != kNcclInProgress)
      throw std::runtime_error("the answer is not: in progress");
    ok_nccl(await_change(self.comm, kNcclInProgress));
    fn(self);
  });
}

template <class Fn>
void run_comms(int n, Fn fn) {
  const auto errors = errors_of_comms(n, [&](const Rank& self) {
    fn(self);
    if (ncclCommFinalize(self.comm) != kNcclInProgress) throw std::runtime_error("finalize");
    ok_nccl(await_change(self.comm, kNcclInProgress));
    ok_nccl(ncclCommDestroy(self.comm));
  });
  for (const std::string& error : errors)
    if (!error.empty()) throw std::runtime_error(error);
}

/// What an all-reduce makes of this rank's values, on every rank.
template <class T>
std::vector<T> all_reduce(const Rank& self, const std::vector<T>& values, NcclDataType type,
                          NcclRedOp op) {
  T* const data = device_copy(values);
  ok_nccl(ncclAllReduce(data, data, values.size(), type, op, self.comm, self.stream));
  return host_copy(data, values.size(), self.stream);
}

}  // namespace ddprun::test
