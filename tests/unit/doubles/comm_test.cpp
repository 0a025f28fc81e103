// SPDX-License-Identifier: MIT
// The fake NCCL: communicators, and what can go wrong with them.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include "support/program.h"
#include "support/scoped_env.h"
#include "unit/doubles/comms.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

/// One element, summed; whether it is done is the caller's question.
NcclResult issue(const Rank& self, std::size_t count = 1) {
  float* const data = device_array<float>(count);
  return ncclAllReduce(data, data, count, kNcclFloat32, kNcclSum, self.comm, self.stream);
}

using Variables = std::map<std::string, std::optional<std::string>>;

ScopedEnv faults(const std::string& plan) {
  return ScopedEnv(Variables{{"FAKE_NCCL_FAULTS", plan}});
}

std::string hex(const NcclUniqueId& id) {
  std::string text;
  for (const char byte : id.internal) {
    text += "0123456789abcdef"[(byte >> 4) & 15];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

/// n processes that reduce five times and say what came of it.
std::vector<std::unique_ptr<Program>> start_processes(int n) {
  const std::string id = hex(make_id());
  std::vector<std::unique_ptr<Program>> ranks;
  for (int rank = 0; rank < n; ++rank)
    ranks.push_back(std::make_unique<Program>(
        std::vector<std::string>{DDPRUN_NCCL_RANK, id, std::to_string(n), std::to_string(rank)}));
  return ranks;
}

struct Library {
  explicit Library(const char* path) : handle(::dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    if (!handle) throw std::runtime_error(::dlerror());
  }
  bool has(const char* name) const { return ::dlsym(handle, name) != nullptr; }
  int version() const {
    int number = 0;
    reinterpret_cast<NcclResult (*)(int*)>(::dlsym(handle, "ncclGetVersion"))(&number);
    return number;
  }
  void* handle;
};

}  // namespace

TEST_SUITE("doubles") {
  TEST_CASE("fake comm: ranks that are processes reduce together") {
    for (const int n : {2, 4, 8}) {
      for (auto& rank : start_processes(n)) {
        CHECK(rank->wait() == 0);
        CHECK(rank->out() == "sum " + std::to_string(n * (n + 1) / 2) + "\n");
      }
    }
  }

  TEST_CASE("fake comm: the death of a process is seen by the others") {
    const ScopedEnv plan = faults("rank=1,call=ncclAllReduce,nth=3,do=kill");
    auto ranks = start_processes(3);
    CHECK(ranks[1]->wait() == 128 + SIGKILL);
    CHECK(ranks[0]->wait() == 0);
    CHECK(ranks[2]->wait() == 0);
    CHECK(ranks[0]->out() == "asynchronous error 6\n");
    CHECK(ranks[2]->out() == "asynchronous error 6\n");
  }

  TEST_CASE("fake comm: the death of a process is not seen when nobody watches") {
    const ScopedEnv plan({{"FAKE_NCCL_FAULTS", "rank=0,call=ncclAllReduce,nth=2,do=exit:9"},
                          {"FAKE_NCCL_PEERWATCH", "0"}});
    auto ranks = start_processes(2);
    CHECK(ranks[0]->wait() == 9);
    CHECK(ranks[1]->wait() == 0);
    CHECK(ranks[1]->out() == "no answer\n");
  }

  TEST_CASE("fake comm: an id can be used once and while its maker lives") {
    NcclUniqueId id = make_id();
    NcclComm comm = nullptr;
    ok_nccl(ncclCommInitRank(&comm, 1, id, 0));
    CHECK(ncclCommInitRank(&comm, 1, id, 0) != kNcclSuccess);
    id = make_id();
    id.internal[0] ^= 1;  // of another process
    CHECK(ncclCommInitRank(&comm, 1, id, 0) == kNcclRemoteError);
  }

  TEST_CASE("fake comm: two ranks on one GPU are refused, all are told") {
    const NcclUniqueId id = make_id();
    run_ranks(3, [&](int rank) {
      ok(cudaSetDevice(rank / 2));
      NcclComm comm = nullptr;
      const NcclResult result = ncclCommInitRank(&comm, 3, id, rank);
      CHECK(result == (rank == 2 ? kNcclRemoteError : kNcclInvalidUsage));
      if (rank != 2)
        CHECK(std::string(ncclGetLastError(nullptr)).starts_with("Duplicate GPU detected"));
    });
  }

  TEST_CASE("fake comm: different calls are named and end in an asynchronous error") {
    const auto errors = errors_of_comms(2, [](const Rank& self) {
      ok_nccl(issue(self, self.rank == 0 ? 100 : 101));
      CHECK(await_change(self.comm, kNcclSuccess) == kNcclInvalidUsage);
      const std::string text = ncclGetLastError(nullptr);
      CHECK(text.find("count 100") != std::string::npos);
      CHECK(text.find("count 101") != std::string::npos);
      CHECK(cudaStreamQuery(self.stream) == kCudaErrorNotReady);
      ok_nccl(ncclCommAbort(self.comm));
      CHECK(cudaStreamSynchronize(self.stream) == kCudaSuccess);
    });
    CHECK(errors == std::vector<std::string>(2));
  }

  TEST_CASE("fake comm: an abort by another thread frees what hangs and what is queued") {
    const ScopedEnv plan = faults("rank=1,call=ncclAllReduce,nth=1,do=hang");
    const auto errors = errors_of_comms(2, [](const Rank& self) {
      ok_nccl(issue(self));
      ok_nccl(issue(self));
      CHECK(cudaStreamQuery(self.stream) == kCudaErrorNotReady);
      std::jthread([&] { ok_nccl(ncclCommAbort(self.comm)); });
      CHECK(cudaStreamSynchronize(self.stream) == kCudaSuccess);
      CHECK(issue(self) == kNcclInvalidArgument);
    });
    CHECK(errors == std::vector<std::string>(2));
  }

  TEST_CASE("fake comm: init that nobody completes can be aborted") {
    NcclComm comm = nullptr;
    NcclConfig config = non_blocking();
    CHECK(ncclCommInitRankConfig(&comm, 2, make_id(), 0, &config) == kNcclInProgress);
    CHECK(async_error(comm) == kNcclInProgress);
    CHECK(issue({0, 2, comm, make_stream()}) == kNcclInProgress);
    CHECK(ncclCommAbort(comm) == kNcclSuccess);
  }

  TEST_CASE("fake comm: NCCL_COMM_BLOCKING beats the configuration") {
    const ScopedEnv blocking(Variables{{"NCCL_COMM_BLOCKING", "1"}});
    NcclComm comm = nullptr;
    NcclConfig config = non_blocking();
    CHECK(ncclCommInitRankConfig(&comm, 1, make_id(), 0, &config) == kNcclSuccess);
    config.magic = 0;
    CHECK(ncclCommInitRankConfig(&comm, 1, make_id(), 0, &config) == kNcclInvalidArgument);
  }

  TEST_CASE("fake comm: faults at a call, for a time, in a stream and in a result") {
    const ScopedEnv plan = faults(
        "rank=0,call=ncclAllReduce,nth=1,do=ret:3;rank=0,call=ncclAllReduce,nth=2,do=inprogress:20;"
        "rank=1,call=ncclAllReduce,nth=1,do=delay:20;rank=0,call=ncclAllReduce,nth=2,do=corrupt;"
        "rank=1,call=ncclAllReduce,nth=3,do=async:2");
    const auto errors = errors_of_comms(2, [](const Rank& self) {
      if (self.rank == 0) {
        CHECK(issue(self) == 3);
        CHECK(issue(self) == kNcclInProgress);
        CHECK(issue(self) == kNcclInProgress);
        CHECK(await_change(self.comm, kNcclInProgress) == kNcclSuccess);
      } else {
        CHECK(issue(self) == kNcclSuccess);
      }
      const auto sum = all_reduce(self, std::vector<float>{1}, kNcclFloat32, kNcclSum);
      CHECK((sum[0] == 2) == (self.rank == 1));
      CHECK(issue(self) == kNcclSuccess);
      if (self.rank == 1) CHECK(await_change(self.comm, kNcclSuccess) == kNcclSystemError);
      ok_nccl(ncclCommAbort(self.comm));
    });
    CHECK(errors == std::vector<std::string>(2));
  }

  TEST_CASE("fake comm: what is not a call of the program is not counted by faults of CUDA") {
    const ScopedEnv plan(Variables{{"FAKE_CUDA_FAULTS", "call=cudaEventRecord,nth=1,err=999"}});
    run_comms(1, [](const Rank& self) {
      CHECK(issue(self) == kNcclSuccess);
      CHECK(cudaEventRecord(make_event(), self.stream) == 999);
    });
  }

  TEST_CASE("fake comm: older libraries lack what they lacked") {
    const Library old(DDPRUN_DOUBLES "/nccl-2.10/libnccl.so.2");
    CHECK(old.version() == 21003);
    CHECK(old.has("ncclAllReduce"));
    CHECK_FALSE(old.has("ncclRedOpCreatePreMulSum"));
    CHECK_FALSE(old.has("ncclCommInitRankConfig"));
    const Library floor(DDPRUN_DOUBLES "/nccl-2.18/libnccl.so.2");
    CHECK(floor.version() == 21805);
    CHECK(floor.has("ncclCommSplit"));
    CHECK_FALSE(floor.has("ncclCommRegister"));
    CHECK(floor.has("ddprun_test_double"));
    CHECK(Library(DDPRUN_DOUBLES "/nccl-2.28/libnccl.so.2").has("ncclCommRegister"));
  }
}
