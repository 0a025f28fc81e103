// SPDX-License-Identifier: MIT
// A libnccl.so.2 that tells the version STUB_VERSION, and has the functions of that version only if
// STUB_COMPLETE is 1.
extern "C" {
#pragma GCC visibility push(default)

int ddprun_test_double() { return 1; }

int ncclGetVersion(int* version) {
  *version = STUB_VERSION;
  return 0;
}
int ncclGetUniqueId() { return 3; }
int ncclCommDestroy() { return 3; }
int ncclCommAbort() { return 3; }
int ncclCommGetAsyncError() { return 3; }
int ncclAllReduce() { return 3; }
int ncclBroadcast() { return 3; }
const char* ncclGetErrorString() { return "this is a stub"; }
const char* ncclGetLastError() { return "this is a stub"; }
#if STUB_COMPLETE
int ncclCommInitRankConfig() { return 3; }
int ncclCommFinalize() { return 3; }
int ncclRedOpCreatePreMulSum() { return 3; }
int ncclRedOpDestroy() { return 3; }
#endif

#pragma GCC visibility pop
}
