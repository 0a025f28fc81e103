// SPDX-License-Identifier: MIT
// The part of NCCL that ddprun uses, as a table of functions found in libnccl.so.2 when a group of
// several GPUs is made. The version is read before anything else, so that a library that is too old
// is called that. https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api.html
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <string>

#include "cuda/cuda_api.h"

namespace ddprun {

using NcclComm = void*;    // ncclComm_t
using NcclResult = int;    // ncclResult_t
using NcclRedOp = int;     // ncclRedOp_t
using NcclDataType = int;  // ncclDataType_t
struct NcclUniqueId {
  char internal[128];
};

inline constexpr NcclResult kNcclSuccess = 0;
inline constexpr NcclResult kNcclUnhandledCudaError = 1;
inline constexpr NcclResult kNcclSystemError = 2;
inline constexpr NcclResult kNcclInternalError = 3;
inline constexpr NcclResult kNcclInvalidArgument = 4;
inline constexpr NcclResult kNcclInvalidUsage = 5;
inline constexpr NcclResult kNcclRemoteError = 6;
inline constexpr NcclResult kNcclInProgress = 7;

inline constexpr NcclRedOp kNcclSum = 0, kNcclMax = 2, kNcclMin = 3, kNcclAvg = 4;
inline constexpr NcclDataType kNcclInt32 = 2, kNcclInt64 = 4, kNcclFloat16 = 6, kNcclFloat32 = 7,
                              kNcclFloat64 = 8, kNcclBfloat16 = 9;
inline constexpr int kNcclScalarHostImmediate = 1;

/// ncclConfig_t as it was in 2.18, and in what was its padding the member that 2.26 put there: left
/// at zero it would override NCCL_IB_TC. A library copies as many bytes as `size` says, at most its
/// own.
struct NcclConfig {
  static constexpr int kUndefined = INT_MIN;

  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21801;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
  int traffic_class = kUndefined;
};
static_assert(sizeof(NcclConfig) == 48);

inline constexpr int kNcclFloor = 21800;  // 2.18

/// Members have the names of the functions; all of them are in every library from the floor on.
struct NcclApi {
  NcclResult (*ncclGetVersion)(int*) = nullptr;
  NcclResult (*ncclGetUniqueId)(NcclUniqueId*) = nullptr;
  NcclResult (*ncclCommInitRankConfig)(NcclComm*, int size, NcclUniqueId, int rank,
                                       NcclConfig*) = nullptr;
  NcclResult (*ncclCommFinalize)(NcclComm) = nullptr;
  NcclResult (*ncclCommDestroy)(NcclComm) = nullptr;
  NcclResult (*ncclCommAbort)(NcclComm) = nullptr;
  NcclResult (*ncclCommGetAsyncError)(NcclComm, NcclResult*) = nullptr;
  NcclResult (*ncclAllReduce)(const void*, void*, std::size_t count, NcclDataType, NcclRedOp,
                              NcclComm, CudaStream) = nullptr;
  NcclResult (*ncclBroadcast)(const void*, void*, std::size_t count, NcclDataType, int root,
                              NcclComm, CudaStream) = nullptr;
  NcclResult (*ncclRedOpCreatePreMulSum)(NcclRedOp*, void* scalar, NcclDataType, int residence,
                                         NcclComm) = nullptr;
  NcclResult (*ncclRedOpDestroy)(NcclRedOp, NcclComm) = nullptr;
  const char* (*ncclGetErrorString)(NcclResult) = nullptr;
  const char* (*ncclGetLastError)(NcclComm) = nullptr;  // the last warning of the process

  int version = 0;  // 22809 is 2.28.9
  std::string path;
  bool loaded_before = false;  // by the program or another library: it chose the copy
  bool test_double = false;
};

/// The table of this process, loaded at the first call: DDPRUN_NCCL_LIB if it is set, else a copy
/// that is loaded already, else what the loader finds as libnccl.so.2, then where Python wheels put
/// it. Threads: any; the first call comes before other threads read the environment, which NCCL
/// writes to. Throws: DeviceError, the same at every call: not found, too old (with the version
/// found, the one needed and the path), a test double where none is allowed.
const NcclApi& nccl_api();
/// Why nccl_api() throws, in one line without a tag; empty when it does not.
const std::string& why_no_nccl();

/// "2.28.9"
std::string nccl_version_text(int version);

}  // namespace ddprun
