// SPDX-License-Identifier: MIT
// The tables of NCCL functions against the real header: a difference does not compile.
#include <cstddef>

#include <doctest/doctest.h>
#include <nccl.h>

#include "comm/nccl/nccl_api.h"
#include "unit/cuda/abi.h"

using namespace ddprun;

#define DDPRUN_SAME(name) \
  static_assert(test::SameAbi<decltype(NcclApi::name), decltype(&::name)>::value, #name);
DDPRUN_NCCL_FUNCTIONS(DDPRUN_SAME)

static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));
static_assert(sizeof(NcclConfig) <= sizeof(ncclConfig_t));
static_assert(offsetof(NcclConfig, size) == offsetof(ncclConfig_t, size));
static_assert(offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(NcclConfig, cga_cluster_size) == offsetof(ncclConfig_t, cgaClusterSize));
static_assert(offsetof(NcclConfig, min_ctas) == offsetof(ncclConfig_t, minCTAs));
static_assert(offsetof(NcclConfig, max_ctas) == offsetof(ncclConfig_t, maxCTAs));
static_assert(offsetof(NcclConfig, net_name) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(NcclConfig, split_share) == offsetof(ncclConfig_t, splitShare));
#if NCCL_VERSION_CODE >= 22600
static_assert(offsetof(NcclConfig, traffic_class) == offsetof(ncclConfig_t, trafficClass));
#endif

TEST_SUITE("cuda") {
  TEST_CASE("NCCL table: its constants are those of the header") {
    CHECK(kNcclSuccess == ncclSuccess);
    CHECK(kNcclUnhandledCudaError == ncclUnhandledCudaError);
    CHECK(kNcclSystemError == ncclSystemError);
    CHECK(kNcclInternalError == ncclInternalError);
    CHECK(kNcclInvalidArgument == ncclInvalidArgument);
    CHECK(kNcclInvalidUsage == ncclInvalidUsage);
    CHECK(kNcclRemoteError == ncclRemoteError);
    CHECK(kNcclInProgress == ncclInProgress);
    CHECK(kNcclSum == ncclSum);
    CHECK(kNcclMax == ncclMax);
    CHECK(kNcclMin == ncclMin);
    CHECK(kNcclAvg == ncclAvg);
    CHECK(kNcclInt32 == ncclInt32);
    CHECK(kNcclInt64 == ncclInt64);
    CHECK(kNcclFloat16 == ncclFloat16);
    CHECK(kNcclFloat32 == ncclFloat32);
    CHECK(kNcclFloat64 == ncclFloat64);
    CHECK(kNcclBfloat16 == ncclBfloat16);
    CHECK(kNcclScalarHostImmediate == ncclScalarHostImmediate);
  }

  TEST_CASE("NCCL table: what its configuration says about itself is what the header says") {
    const ncclConfig_t real = NCCL_CONFIG_INITIALIZER;
    const NcclConfig ours;
    CHECK(ours.magic == real.magic);
    CHECK(ours.blocking == real.blocking);
    CHECK(ours.net_name == real.netName);
    CHECK(ours.split_share == real.splitShare);
    CHECK(ours.traffic_class == NCCL_CONFIG_UNDEF_INT);
    CHECK(ours.version <= real.version);
  }
}
