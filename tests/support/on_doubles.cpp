// SPDX-License-Identifier: MIT
// Linked into a test program, makes it find the doubles of CUDA and NCCL unless its environment
// says otherwise. (ctest cannot be told several variables for tests that are discovered.)
#include <cstdlib>

namespace {

const bool set_before_main = [] {
  ::setenv("DDPRUN_ALLOW_TEST_DOUBLES", "1", 0);
  ::setenv("DDPRUN_CUDART_LIB", DDPRUN_DOUBLES "/cuda/libcudart.so.13", 0);
  ::setenv("DDPRUN_NCCL_LIB", DDPRUN_DOUBLES "/nccl-2.28/libnccl.so.2", 0);
  ::setenv("FAKE_CUDA_STRICT_NULL", "1", 0);
  return true;
}();

}  // namespace
