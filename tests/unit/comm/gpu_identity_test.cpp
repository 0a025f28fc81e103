// SPDX-License-Identifier: MIT
// Ranks that do not fit together find that out before NCCL does, all of them in the same words.
#include "comm/nccl/gpu_identity.h"

#include <ddprun/error.h>
#include <ddprun/hash_store.h>

#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "support/group_of_threads.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

constexpr std::chrono::milliseconds kLimit = std::chrono::seconds(20);

GpuIdentity identity(int rank) {
  GpuIdentity own;
  own.host = "node-a and its boot";
  own.hostname = "node-a";
  own.bus_id = "0000:0" + std::to_string(rank + 1) + ":00.0";
  own.nccl = "2.28.9";
  own.nccl_path = "/lib/libnccl.so.2";
  own.cuda = "13.0 (driver 13.0)";
  return own;
}

using Change = std::function<void(int rank, GpuIdentity&)>;

/// What each rank throws; all must throw the same, which is returned.
std::string error_of_all(int size, const Change& change) {
  const auto store = make_hash_store();
  const auto errors = errors_of_ranks(size, [&](int rank) {
    GpuIdentity own = identity(rank);
    change(rank, own);
    check_identities(*store, rank, size, own, kLimit, Deadline::after(kLimit));
  });
  for (const std::string& error : errors) CHECK(error == errors.front());
  return errors.front();
}

}  // namespace

TEST_SUITE("collectives") {
  TEST_CASE("GPU identity: ranks with a GPU each get on") {
    for (const int size : {1, 2, 4}) CHECK(error_of_all(size, [](int, GpuIdentity&) {}).empty());
  }

  TEST_CASE("GPU identity: two ranks on one GPU are named with host and bus") {
    CHECK(error_of_all(4,
                       [](int rank, GpuIdentity& own) {
                         if (rank >= 2) own.bus_id = identity(1).bus_id;
                       }) ==
          "[nccl] set-up: ranks 1 and 2 on host node-a both use GPU 0000:02:00.0; set the "
          "device to LOCAL_RANK or lower --nproc_per_node");
  }

  TEST_CASE("GPU identity: the same bus on another host is another GPU") {
    CHECK(error_of_all(2, [](int rank, GpuIdentity& own) {
            own.bus_id = identity(0).bus_id;
            if (rank == 1) own.host = "node-b and its boot";
          }).empty());
  }

  TEST_CASE("GPU identity: different versions of NCCL are named with ranks and files") {
    CHECK(error_of_all(3,
                       [](int rank, GpuIdentity& own) {
                         if (rank != 2) return;
                         own.hostname = "node-b";
                         own.nccl = "2.18.5";
                         own.nccl_path = "/opt/libnccl.so.2";
                       }) ==
          "[nccl] set-up: rank 2 on host node-b has NCCL 2.18.5 at /opt/libnccl.so.2, but rank "
          "0 on host node-a has 2.28.9 at /lib/libnccl.so.2; give all ranks the same one, with "
          "DDPRUN_NCCL_LIB if need be");
  }

  TEST_CASE("GPU identity: a fault in one rank's variables is every rank's error") {
    CHECK(error_of_all(3, [](int rank, GpuIdentity& own) {
            if (rank == 1) own.fault = "NCCL_IB_DISABLE=true\nis not a number";
          }) == "[nccl] set-up: rank 1 on host node-a: NCCL_IB_DISABLE=true is not a number");
  }

  TEST_CASE("GPU identity: a GPU that fails on one rank is every rank's error, at once") {
    CHECK(error_of_all(3, [](int rank, GpuIdentity& own) {
            if (rank != 2) return;
            own = {};
            own.hostname = "node-b";
            own.failure = "[cuda] cudaSetDevice: busy";
          }) == "[nccl] set-up: rank 2 on host node-b: [cuda] cudaSetDevice: busy");
  }

  TEST_CASE("GPU identity: versions of CUDA may differ") {
    CHECK(error_of_all(2, [](int rank, GpuIdentity& own) {
            if (rank == 1) own.cuda = "12.8 (driver 13.0)";
          }).empty());
  }

  TEST_CASE("GPU identity: ranks that never come are named at the deadline") {
    const auto store = make_hash_store();
    constexpr std::chrono::milliseconds kShort(50);
    const auto errors = errors_of_ranks(4, [&](int rank) {
      if (rank == 1 || rank == 3) return;
      CHECK_THROWS_AS(
          check_identities(*store, rank, 4, identity(rank), kShort, Deadline::after(kShort)),
          TimeoutError);
      check_identities(*store, rank, 4, identity(rank), kShort, Deadline::after(kShort));
    });
    for (const int rank : {0, 2})
      CHECK(errors[static_cast<std::size_t>(rank)] ==
            "[nccl] set-up: rank(s) 1, 3 of 4 have not arrived within 50 ms; see whether they "
            "started, or raise ProcessGroupOptions::timeout");
  }
}
