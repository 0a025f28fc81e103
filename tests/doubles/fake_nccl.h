// SPDX-License-Identifier: MIT
// TEST DOUBLE of NCCL: what it exports, with the ABI of libnccl.so.2. One library is built for each
// version wanted; functions that a version lacks are absent. Ranks, threads or processes, meet in
// memory that the maker of the unique id holds. Collectives are host functions on the stream they
// are given, so that only what streams and events order is ordered. Rules that it encodes:
//   meeting   fake_nccl_segment.h   nothing remains in /dev/shm; dead peers are seen
//   values    fake_nccl_reduce.cpp  rank order; 16-bit types are summed in float and rounded once;
//                                   an average first multiplies by 1/n, ROUNDED to the type
//   calls     fake_nccl_execute.cpp  the calls of all ranks are compared: error 5 if they differ
//   comms     fake_nccl_comm.cpp    non-blocking ones answer 7 until GetAsyncError says otherwise
// Stricter than reality: what would be a hang or wrong numbers is an error: different calls, memory
// of another device or of the host, buffers that are too small. Laxer: Finalize and Destroy wait
// for this rank's work alone; ranks of a group call may run on different streams; results never
// depend on an algorithm. Environment:
// FAKE_NCCL_FAULTS="rank=1,call=ncclAllReduce,nth=3,do=hang;..." with rank and nth also
// "*" and do = ret:code (the call's answer), inprogress:ms (7 for so long, as a real non-blocking
// communicator answers every call; 0: done when it is asked), hang, delay:ms, async:code
// (asynchronous error, and hang), exit:code, kill, corrupt (one bit of the result), never (init
// does not end), abort_hang (ncclCommAbort does not end). FAKE_NCCL_PEERWATCH=0: dead peers are not
// seen. As with NCCL: NCCL_COMM_BLOCKING, NCCL_DEBUG, NCCL_HOSTID, NCCL_MULTI_RANK_GPU_ENABLE.
#pragma once

#include <cstddef>

#include "comm/nccl/nccl_api.h"

#ifndef FAKE_NCCL_VERSION
#define FAKE_NCCL_VERSION 22809
#endif

using ddprun::CudaStream;
using ddprun::NcclComm;
using ddprun::NcclConfig;
using ddprun::NcclDataType;
using ddprun::NcclRedOp;
using ddprun::NcclResult;
using ddprun::NcclUniqueId;

#pragma GCC visibility push(default)
extern "C" {

int ddprun_test_double();  // that it is one; a function, as several doubles in a process have it

NcclResult ncclGetVersion(int* version);
NcclResult ncclGetUniqueId(NcclUniqueId* id);
const char* ncclGetErrorString(NcclResult result);
NcclResult ncclCommInitRank(NcclComm* comm, int size, NcclUniqueId id, int rank);
NcclResult ncclCommDestroy(NcclComm comm);
NcclResult ncclCommAbort(NcclComm comm);
NcclResult ncclCommGetAsyncError(NcclComm comm, NcclResult* error);
NcclResult ncclCommCount(NcclComm comm, int* count);
NcclResult ncclCommCuDevice(NcclComm comm, int* device);
NcclResult ncclCommUserRank(NcclComm comm, int* rank);
NcclResult ncclGroupStart();
NcclResult ncclGroupEnd();
NcclResult ncclAllReduce(const void* in, void* out, std::size_t count, NcclDataType, NcclRedOp,
                         NcclComm, CudaStream);
NcclResult ncclBroadcast(const void* in, void* out, std::size_t count, NcclDataType, int root,
                         NcclComm, CudaStream);
NcclResult ncclReduce(const void* in, void* out, std::size_t count, NcclDataType, NcclRedOp,
                      int root, NcclComm, CudaStream);
/// `count`: of each rank's part, here and in the next.
NcclResult ncclAllGather(const void* in, void* out, std::size_t count, NcclDataType, NcclComm,
                         CudaStream);
NcclResult ncclReduceScatter(const void* in, void* out, std::size_t count, NcclDataType, NcclRedOp,
                             NcclComm, CudaStream);
#if FAKE_NCCL_VERSION >= 21100
NcclResult ncclRedOpCreatePreMulSum(NcclRedOp* op, void* scalar, NcclDataType, int residence,
                                    NcclComm);
NcclResult ncclRedOpDestroy(NcclRedOp op, NcclComm comm);
#endif
#if FAKE_NCCL_VERSION >= 21300
const char* ncclGetLastError(NcclComm comm);
#endif
#if FAKE_NCCL_VERSION >= 21400
NcclResult ncclCommInitRankConfig(NcclComm* comm, int size, NcclUniqueId id, int rank,
                                  NcclConfig* config);
NcclResult ncclCommFinalize(NcclComm comm);
#endif
#if FAKE_NCCL_VERSION >= 21800
NcclResult ncclCommSplit(NcclComm comm, int color, int key, NcclComm* part, NcclConfig* config);
#endif
#if FAKE_NCCL_VERSION >= 21900
NcclResult ncclMemAlloc(void** pointer, std::size_t bytes);
NcclResult ncclMemFree(void* pointer);
NcclResult ncclCommRegister(NcclComm comm, void* pointer, std::size_t bytes, void** handle);
NcclResult ncclCommDeregister(NcclComm comm, void* handle);
#endif

}  // extern "C"
#pragma GCC visibility pop
