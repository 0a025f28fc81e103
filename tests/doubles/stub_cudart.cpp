// SPDX-License-Identifier: MIT
// A libcudart that can be loaded and asked what there is; it computes nothing. Environment:
// STUB_CUDA_RUNTIME (of a copy named libcudart.so.12: STUB_CUDA_RUNTIME_OF_12), STUB_CUDA_DRIVER
// (versions, 13000), STUB_CUDA_DEVICES (2), STUB_CUDA_ERROR (of the count, 0; it is kept until
// cudaGetLastError takes it), STUB_CUDA_BUSY (a device that cannot be selected, -1).
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <dlfcn.h>

namespace {

thread_local int kept_error = 0;

int number(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

}  // namespace

extern "C" {
#pragma GCC visibility push(default)

int ddprun_test_double() { return 1; }

int cudaRuntimeGetVersion(int* version) {
  Dl_info file{};
  ::dladdr(reinterpret_cast<void*>(&ddprun_test_double), &file);
  const bool is_12 = std::strstr(file.dli_fname, ".so.12") != nullptr;
  *version = number(is_12 ? "STUB_CUDA_RUNTIME_OF_12" : "STUB_CUDA_RUNTIME", 13000);
  return 0;
}
int cudaDriverGetVersion(int* version) {
  *version = number("STUB_CUDA_DRIVER", 13000);
  return 0;
}
int cudaGetDeviceCount(int* count) {
  if (kept_error == 0) kept_error = number("STUB_CUDA_ERROR", 0);
  if (kept_error == 0) *count = number("STUB_CUDA_DEVICES", 2);
  return kept_error;
}
int cudaPeekAtLastError() { return kept_error; }
int cudaGetLastError() {
  const int error = kept_error;
  kept_error = 0;
  return error;
}
const char* cudaGetErrorName(int) { return "cudaErrorStub"; }
const char* cudaGetErrorString(int) { return "as the stub was told"; }
int cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
  std::snprintf(text, static_cast<std::size_t>(bytes), "0000:%02x:00.0", device + 1);
  return 0;
}

int cudaSetDevice(int device) { return device == number("STUB_CUDA_BUSY", -1) ? 46 : 0; }
int cudaGetDevice() { return 0; }
int cuCtxGetCurrent(void** context) {
  *context = nullptr;
  return 0;
}
int cuCtxSetCurrent() { return 0; }
int cudaDeviceGetAttribute() { return 0; }
int cudaMalloc() { return 2; }
int cudaFree() { return 0; }
int cudaMemcpyAsync() { return 0; }
int cudaMemsetAsync() { return 0; }
int cudaDeviceGetStreamPriorityRange() { return 0; }
int cudaStreamCreateWithPriority() { return 2; }
int cudaStreamDestroy() { return 0; }
int cudaStreamQuery() { return 0; }
int cudaStreamIsCapturing() { return 0; }
int cudaStreamWaitEvent() { return 0; }
int cudaEventCreateWithFlags() { return 2; }
int cudaEventDestroy() { return 0; }
int cudaEventRecord() { return 0; }
int cudaEventQuery() { return 0; }
int cudaThreadExchangeStreamCaptureMode() { return 0; }
int cudaLaunchKernel() { return 0; }

#pragma GCC visibility pop
}
