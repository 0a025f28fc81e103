// SPDX-License-Identifier: MIT
// The doubles have the functions of the tables, with their very types: else it does not compile.
#include "unit/cuda/abi.h"

#include <doctest/doctest.h>

#include "doubles/fake_cudart.h"
#include "doubles/fake_nccl.h"

using namespace ddprun;

#define DDPRUN_CUDA_SAME(name) \
  static_assert(std::is_same_v<decltype(CudaApi::name), decltype(&::name)>, #name);
DDPRUN_CUDA_FUNCTIONS(DDPRUN_CUDA_SAME)
#define DDPRUN_NCCL_SAME(name) \
  static_assert(std::is_same_v<decltype(NcclApi::name), decltype(&::name)>, #name);
DDPRUN_NCCL_FUNCTIONS(DDPRUN_NCCL_SAME)

TEST_SUITE("doubles") {
  TEST_CASE("fake libraries: carry the mark by which programs refuse them") {
    CHECK(ddprun_test_double() == 1);
  }
}
