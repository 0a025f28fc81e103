// SPDX-License-Identifier: MIT
// Fake CUDA runtime: errors. Each thread has a last error; some errors stick to a device.
// Stricter than reality: a call from inside a host function is refused at once, and so is any call
// in a process forked from one that has used CUDA.
#include <cstdarg>
#include <cstdio>
#include <deque>
#include <mutex>
#include <string>

#include <unistd.h>

#include "doubles/environment.h"
#include "doubles/fake_cudart_state.h"

namespace ddprun::doubles {
namespace {

thread_local CudaError last_error = kSuccess;
thread_local bool in_host_function = false;
thread_local bool faults_suspended = false;
std::array<std::atomic<CudaError>, kMaxDevices> broken_devices{};

struct Fault {
  Rule rule;
  int seen = 0;
};

/// The fault that FAKE_CUDA_FAULTS has for this call. The lock is taken only with a plan: it orders
/// threads, which without one nothing but CUDA may.
CudaError planned_fault(const char* name) {
  const char* plan = std::getenv("FAKE_CUDA_FAULTS");
  if (!plan || !*plan || faults_suspended) return kSuccess;
  static std::mutex mutex;
  static std::string parsed;
  static std::deque<Fault> faults;
  const std::lock_guard lock(mutex);
  if (parsed != plan) {
    parsed = plan;
    faults.clear();
    for (Rule& rule : parse_rules(parsed)) faults.push_back({std::move(rule)});
  }
  CudaError found = kSuccess;
  for (Fault& fault : faults) {
    if (value_of(fault.rule, "call", "") != name) continue;
    if (++fault.seen != std::stoi(value_of(fault.rule, "nth", "1")) || found != kSuccess) continue;
    found = std::stoi(value_of(fault.rule, "err", "999"));
    if (value_of(fault.rule, "sticky", "0") == "1") break_device(current_device(), found);
  }
  return found;
}

bool forked() {
  static const pid_t first = ::getpid();
  return ::getpid() != first;
}

struct Text {
  CudaError error;
  const char* name;
  const char* text;
};

// As libcudart 13 says them.
constexpr Text kTexts[] = {
    {0, "cudaSuccess", "no error"},
    {1, "cudaErrorInvalidValue", "invalid argument"},
    {2, "cudaErrorMemoryAllocation", "out of memory"},
    {3, "cudaErrorInitializationError", "initialization error"},
    {4, "cudaErrorCudartUnloading", "driver shutting down"},
    {9, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {34, "cudaErrorStubLibrary", "CUDA driver is a stub library"},
    {35, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {46, "cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable"},
    {98, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {100, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {101, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {200, "cudaErrorInvalidKernelImage", "device kernel image is invalid"},
    {201, "cudaErrorDeviceUninitialized", "invalid device context"},
    {209, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {214, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {304, "cudaErrorOperatingSystem", "OS call failed or operation not supported on this OS"},
    {400, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {401, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
    {500, "cudaErrorSymbolNotFound", "named symbol not found"},
    {600, "cudaErrorNotReady", "device not ready"},
    {700, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {701, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
    {702, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    {719, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {800, "cudaErrorNotPermitted", "operation not permitted"},
    {801, "cudaErrorNotSupported", "operation not supported"},
    {802, "cudaErrorSystemNotReady", "system not yet initialized"},
    {803, "cudaErrorSystemDriverMismatch",
     "system has unsupported display driver / cuda driver combination"},
    {900, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {901, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {902, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {903, "cudaErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {904, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {905, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {906, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {907, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {908, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {999, "cudaErrorUnknown", "unknown error"},
};

const Text* text_of(CudaError error) {
  for (const Text& text : kTexts)
    if (text.error == error) return &text;
  return nullptr;
}

}  // namespace

CudaError refuse(CudaError error, const char* format, ...) {
  char text[512];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  std::fprintf(stderr, "[fake cudart] %s\n", text);
  return error;
}

void break_device(int device, CudaError error) {
  broken_devices.at(static_cast<std::size_t>(device)).store(error, std::memory_order_relaxed);
}

CudaError broken(int device) {
  return broken_devices.at(static_cast<std::size_t>(device)).load(std::memory_order_relaxed);
}

CudaError before_call(const char* name) {
  if (in_host_function)
    return refuse(kNotPermitted, "%s: called by a host function of a stream", name);
  if (environment_int("FAKE_CUDA_DRIVER", 13000) == 0) return kInsufficientDriver;
  if (device_count() == 0) return kNoDevice;
  if (forked())
    return refuse(kInitializationError, "%s: this process was forked by one that used CUDA", name);
  const CudaError stuck = broken(current_device());
  return stuck != kSuccess ? stuck : planned_fault(name);
}

CudaError remember(CudaError error) {
  if (error != kSuccess && error != kNotReady) last_error = error;
  return error;
}

void set_in_host_function(bool inside) { in_host_function = inside; }

}  // namespace ddprun::doubles

using namespace ddprun::doubles;

int ddprun_test_double() { return 1; }

void double_cuda_suspend_faults(bool suspended) { faults_suspended = suspended; }

CudaError cudaPeekAtLastError() {
  const CudaError stuck = broken(current_device());
  return stuck != kSuccess ? stuck : last_error;
}

CudaError cudaGetLastError() {
  const CudaError error = cudaPeekAtLastError();
  if (error != kInsufficientDriver) last_error = kSuccess;  // that one stays, as with CUDA 13
  return error;
}

const char* cudaGetErrorName(CudaError error) {
  const Text* text = text_of(error);
  return text ? text->name : "unrecognized error code";
}

const char* cudaGetErrorString(CudaError error) {
  const Text* text = text_of(error);
  return text ? text->text : "unrecognized error code";
}
