// SPDX-License-Identifier: MIT
// What one rank cannot do in the set-up of a group on GPUs ends the set-up of all, soon and with
// its reason.
#include <doctest/doctest.h>

#include "support/gpu_rank_processes.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

/// Rank 1 meets the fault, and all say so; none waits for its timeout.
void check_set_up(const Faults& faults, const std::string& text) {
  const auto started = now_us();
  auto ranks = gpu_ranks(3, kPatience, faults, reduce_for_ever, 1);
  for (int r = 0; r < 3; ++r) {
    const auto failure = failure_from(ranks, r);
    CHECK_MESSAGE(failure.type == (r == 1 ? "DeviceError" : "RemoteError"), failure.text);
    CHECK_MESSAGE(failure.rank == (r == 1 ? -1 : 1), failure.text);
    CHECK_MESSAGE(contains(failure.text, "[nccl] set-up: rank 1: "), failure.text);
    CHECK_MESSAGE(contains(failure.text, text), failure.text);
    CHECK(failure.at_us - started < 2 * kPromisedUs);
  }
}

}  // namespace

TEST_SUITE("contract") {
  TEST_CASE("NcclBackend: a rank without memory in the set-up is named by all") {
    check_set_up({{"FAKE_CUDA_FAULTS", "call=cudaMalloc,nth=1,err=2"}}, "cudaMalloc of 4 bytes");
  }

  TEST_CASE("NcclBackend: a rank without a stream in the set-up is named by all") {
    check_set_up({{"FAKE_CUDA_FAULTS", "call=cudaStreamCreateWithPriority,nth=1,err=2"}},
                 "cudaStreamCreateWithPriority");
  }

  TEST_CASE("NcclBackend: a rank that cannot fill memory in the set-up is named by all") {
    check_set_up({{"FAKE_CUDA_FAULTS", "call=cudaMemsetAsync,nth=1,err=719"}}, "cudaMemsetAsync");
  }

  TEST_CASE("NcclBackend: a device that is lost in the set-up is named by all") {
    // 1: to compare GPUs, 2: in the thread of the program, 3: in that of ncclCommInitRank
    check_set_up({{"FAKE_CUDA_FAULTS", "call=cudaSetDevice,nth=2,err=46"}},
                 "[cuda] cudaSetDevice: ");
    check_set_up({{"FAKE_CUDA_FAULTS", "call=cudaSetDevice,nth=3,err=46"}},
                 "cudaSetDevice in the thread of ncclCommInitRank");
  }

  TEST_CASE("NcclBackend: a set-up that NCCL refuses on one rank is named by all") {
    check_set_up({{"FAKE_NCCL_FAULTS", "rank=1,call=ncclCommInitRank,do=ret:2"}},
                 "ncclCommInitRank");
  }
}
