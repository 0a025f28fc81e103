// SPDX-License-Identifier: MIT
// TEST DOUBLE of the CUDA runtime: what it exports, with the names and the ABI of libcudart.so.13,
// and the few functions of its own. Programs that were compiled for the real library run on it, on
// CPUs. Rules that it encodes:
//   memory   fake_cudart_memory.cpp   the host cannot touch it; fresh is NaN; sizes are checked
//   streams  fake_cudart_stream.cpp   a thread each; nothing orders them but what CUDA promises
//   events   fake_cudart_event.cpp
//   capture  fake_cudart_capture.cpp  error codes; a graph runs with its own dependencies alone
//   kernels  fake_cudart_kernel.cpp   their sources compiled for CPUs, see cuda_on_cpu.h
//   devices  fake_cudart_device.cpp   CUDA_VISIBLE_DEVICES; who has a context on them
//   errors   fake_cudart_error.cpp    names, faults on demand
// Environment: FAKE_CUDA_DEVICES (8), FAKE_CUDA_MEM_MB (1024, of each device), FAKE_CUDA_DRIVER
// (13000; 0: no driver), FAKE_CUDA_RUNTIME (13000),
// FAKE_CUDA_FAULTS="call=cudaMalloc,nth=2,err=2[,sticky=1];...", FAKE_CUDA_JITTER_US and
// FAKE_CUDA_SEED (random wait before each piece of work), FAKE_CUDA_SLOW_STREAM<k> (microseconds
// before each piece of work of the k-th stream made), FAKE_CUDA_STRICT_NULL=1 (abort when a default
// stream is used). Read when the process first needs them; FAKE_CUDA_FAULTS at every call.
#pragma once

#include <cstddef>

#include "cuda/cuda_api.h"

using ddprun::CudaContext;
using ddprun::CudaDim3;
using ddprun::CudaError;
using ddprun::CudaEvent;
using ddprun::CudaKernel;
using ddprun::CudaLibrary;
using ddprun::CudaStream;
using CudaGraph = void*;
using CudaGraphExec = void*;

struct CudaPointerAttributes {
  int type;  // 0: unknown to CUDA, 1: host, 2: device
  int device;
  void* device_pointer;
  void* host_pointer;
  long reserved[8];
};

#pragma GCC visibility push(default)
extern "C" {

int ddprun_test_double();  // that it is one; a function, as several doubles in a process have it

// For the other doubles, in work of a stream: where the bytes of device memory really are.
void* double_cuda_bytes(const void* pointer);
/// Bytes from `pointer` to the end of the allocation it is in, 0 after its end or when it was
/// freed; of host memory SIZE_MAX.
std::size_t double_cuda_room(const void* pointer);
/// The device of a pointer, -1 for host memory.
int double_cuda_device_of(const void* pointer);
/// The device of a stream, -1 when it is none.
int double_cuda_device_of_stream(CudaStream stream);
/// Whether this process has a context on a device; also for tests.
int double_cuda_has_context(int device);
/// Whether calls of this thread are left out of FAKE_CUDA_FAULTS.
void double_cuda_suspend_faults(bool suspended);

CudaError cudaRuntimeGetVersion(int* version);
CudaError cudaDriverGetVersion(int* version);
CudaError cudaGetDeviceCount(int* count);
CudaError cudaSetDevice(int device);
CudaError cudaGetDevice(int* device);
CudaError cudaDeviceGetAttribute(int* value, int attribute, int device);
CudaError cudaDeviceGetPCIBusId(char* text, int bytes, int device);
CudaError cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
CudaError cudaDeviceSynchronize();

// Of the driver.
CudaError cuCtxGetCurrent(CudaContext* context);
CudaError cuCtxSetCurrent(CudaContext context);

CudaError cudaGetLastError();
CudaError cudaPeekAtLastError();
const char* cudaGetErrorName(CudaError error);
const char* cudaGetErrorString(CudaError error);

CudaError cudaMalloc(void** pointer, std::size_t bytes);
CudaError cudaFree(void* pointer);
CudaError cudaMallocHost(void** pointer, std::size_t bytes);
CudaError cudaHostAlloc(void** pointer, std::size_t bytes, unsigned flags);
CudaError cudaFreeHost(void* pointer);
CudaError cudaPointerGetAttributes(CudaPointerAttributes* attributes, const void* pointer);
CudaError cudaMemcpy(void* to, const void* from, std::size_t bytes, int kind);
CudaError cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int kind, CudaStream);
CudaError cudaMemset(void* to, int value, std::size_t bytes);
CudaError cudaMemsetAsync(void* to, int value, std::size_t bytes, CudaStream);

CudaError cudaStreamCreate(CudaStream* stream);
CudaError cudaStreamCreateWithFlags(CudaStream* stream, unsigned flags);
CudaError cudaStreamCreateWithPriority(CudaStream* stream, unsigned flags, int priority);
CudaError cudaStreamDestroy(CudaStream stream);
CudaError cudaStreamQuery(CudaStream stream);
CudaError cudaStreamSynchronize(CudaStream stream);
CudaError cudaStreamWaitEvent(CudaStream stream, CudaEvent event, unsigned flags);
CudaError cudaLaunchHostFunc(CudaStream stream, void (*function)(void*), void* argument);

CudaError cudaEventCreate(CudaEvent* event);
CudaError cudaEventCreateWithFlags(CudaEvent* event, unsigned flags);
CudaError cudaEventDestroy(CudaEvent event);
CudaError cudaEventRecord(CudaEvent event, CudaStream stream);
CudaError cudaEventQuery(CudaEvent event);
CudaError cudaEventSynchronize(CudaEvent event);
CudaError cudaEventElapsedTime(float* milliseconds, CudaEvent start, CudaEvent end);

CudaError cudaThreadExchangeStreamCaptureMode(int* mode);
CudaError cudaStreamBeginCapture(CudaStream stream, int mode);
CudaError cudaStreamIsCapturing(CudaStream stream, int* status);
CudaError cudaStreamEndCapture(CudaStream stream, CudaGraph* graph);
CudaError cudaGraphInstantiate(CudaGraphExec* exec, CudaGraph graph, unsigned long long flags);
CudaError cudaGraphInstantiateWithFlags(CudaGraphExec*, CudaGraph, unsigned long long flags);
CudaError cudaGraphLaunch(CudaGraphExec exec, CudaStream stream);
CudaError cudaGraphDestroy(CudaGraph graph);
CudaError cudaGraphExecDestroy(CudaGraphExec exec);

CudaError cudaLibraryLoadData(CudaLibrary* library, const void* code, int* jit_options,
                              void** jit_values, unsigned jit_count, int* library_options,
                              void** library_values, unsigned library_count);
CudaError cudaLibraryGetKernel(CudaKernel* kernel, CudaLibrary library, const char* name);
CudaError cudaLibraryUnload(CudaLibrary library);
CudaError cudaLaunchKernel(const void* kernel, CudaDim3 grid, CudaDim3 block, void** arguments,
                           std::size_t shared_bytes, CudaStream stream);

// What code that nvcc makes for <<<>>> calls.
void** __cudaRegisterFatBinary(void* code);
void __cudaRegisterFatBinaryEnd(void** handle);
void __cudaUnregisterFatBinary(void** handle);
char __cudaInitModule(void** handle);
void __cudaRegisterFunction(void** handle, const char* host_function, char* device_function,
                            const char* name, int thread_limit, void*, void*, void*, void*, int*);
void __cudaRegisterVar(void** handle, char*, char*, const char* name, int, std::size_t, int, int);
unsigned __cudaPushCallConfiguration(CudaDim3 grid, CudaDim3 block, std::size_t shared_bytes,
                                     CudaStream stream);
CudaError __cudaPopCallConfiguration(CudaDim3* grid, CudaDim3* block, std::size_t* shared_bytes,
                                     void* stream);
CudaError __cudaGetKernel(CudaKernel* kernel, const void* host_function);
CudaError __cudaLaunchKernel(CudaKernel kernel, CudaDim3 grid, CudaDim3 block, void** arguments,
                             std::size_t shared_bytes, CudaStream stream);

}  // extern "C"
#pragma GCC visibility pop
