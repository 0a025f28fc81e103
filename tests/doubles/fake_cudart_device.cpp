// SPDX-License-Identifier: MIT
// Fake CUDA runtime: devices. FAKE_CUDA_DEVICES says how many the machine has, CUDA_VISIBLE_DEVICES
// which of them this process sees, in which order: indices or "GPU-..." (a beginning of a UUID that
// is unique); what cannot be understood ends the list; one device twice empties it. Device k of the
// machine has the bus id 0000:<k+1>:00.0 and the UUID GPU-00000000-0000-0000-0000-<k, 12 digits>.
// Contexts: cudaSetDevice makes the device's, as since CUDA 12, and so does any work of a thread
// that has none, on device 0.
// Stricter than reality: a thread whose context was taken away forgets which device it had chosen.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "doubles/environment.h"
#include "doubles/fake_cudart_state.h"

namespace ddprun::doubles {
namespace {

constexpr int kNone = -1;
thread_local int device_of_thread = kNone;  // whose context is current
std::array<std::atomic<bool>, kMaxDevices> contexts;

void make_current(int device) {
  device_of_thread = device;
  contexts.at(static_cast<std::size_t>(device)).store(true, std::memory_order_relaxed);
}

/// The device of the machine that an entry of CUDA_VISIBLE_DEVICES names, -1: none.
int named_device(const std::string& entry, int on_machine) {
  int found = -1;
  if (entry.starts_with("GPU-")) {
    for (int device = 0; device < on_machine; ++device) {
      char uuid[64];
      std::snprintf(uuid, sizeof uuid, "GPU-00000000-0000-0000-0000-%012d", device);
      if (!std::string(uuid).starts_with(entry)) continue;
      if (found >= 0) return -1;  // several begin like that
      found = device;
    }
    return found;
  }
  char* end = nullptr;
  const long index = std::strtol(entry.c_str(), &end, 10);
  const bool number = end != entry.c_str() && *end == '\0';
  return number && index >= 0 && index < on_machine ? static_cast<int>(index) : -1;
}

std::vector<int> find_visible() {
  const int on_machine = std::min(environment_int("FAKE_CUDA_DEVICES", 8), kMaxDevices);
  std::vector<int> visible;
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!list) {
    for (int device = 0; device < on_machine; ++device) visible.push_back(device);
    return visible;
  }
  for (const std::string& entry : split(list, ',')) {
    const int device = named_device(entry, on_machine);
    if (device < 0) break;
    if (std::find(visible.begin(), visible.end(), device) != visible.end()) return {};
    visible.push_back(device);
  }
  return visible;
}

/// Numbers on the machine of the devices that this process sees.
const std::vector<int>& visible_devices() {
  static const auto& visible = *new std::vector<int>(find_visible());
  return visible;
}

bool exists(int device) { return device >= 0 && device < device_count(); }

}  // namespace

int device_count() { return static_cast<int>(visible_devices().size()); }

int current_device() { return std::max(device_of_thread, 0); }

void need_context() {
  if (device_of_thread == kNone) make_current(current_device());
}

}  // namespace ddprun::doubles

using namespace ddprun::doubles;

CudaError cudaRuntimeGetVersion(int* version) {
  *version = environment_int("FAKE_CUDA_RUNTIME", 13000);
  return kSuccess;
}

CudaError cudaDriverGetVersion(int* version) {
  *version = environment_int("FAKE_CUDA_DRIVER", 13000);
  return kSuccess;
}

CudaError cudaGetDeviceCount(int* count) {
  return call_without_context(__func__, [&] { return *count = device_count(), kSuccess; });
}

int double_cuda_has_context(int device) {
  return exists(device) && contexts.at(static_cast<std::size_t>(device)).load();
}

CudaError cudaSetDevice(int device) {
  return call_without_context(__func__, [&] {
    if (!exists(device)) return kInvalidDevice;
    make_current(device);
    return kSuccess;
  });
}

CudaError cudaGetDevice(int* device) {
  return call_without_context(__func__, [&] { return *device = current_device(), kSuccess; });
}

// A context is told by the address of its entry.
CudaError cuCtxGetCurrent(CudaContext* context) {
  *context = device_of_thread == kNone ? nullptr : &contexts.at(std::size_t(device_of_thread));
  return kSuccess;
}

CudaError cuCtxSetCurrent(CudaContext context) {
  const auto* const entry = static_cast<const std::atomic<bool>*>(context);
  device_of_thread = entry == nullptr ? kNone : static_cast<int>(entry - contexts.data());
  return kSuccess;
}

CudaError cudaDeviceGetAttribute(int* value, int attribute, int device) {
  return call_without_context(__func__, [&] {
    if (!exists(device)) return kInvalidDevice;
    switch (attribute) {  // those of an H200
      case ddprun::kCudaAttributeMultiProcessorCount:
        *value = 132;
        return kSuccess;
      case ddprun::kCudaAttributeCapabilityMajor:
        *value = 9;
        return kSuccess;
      case ddprun::kCudaAttributeCapabilityMinor:
        *value = 0;
        return kSuccess;
      default:
        return refuse(kInvalidValue, "cudaDeviceGetAttribute: %d is not known here", attribute);
    }
  });
}

CudaError cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
  return call_without_context(__func__, [&] {
    if (!exists(device)) return kInvalidDevice;
    if (!text || bytes < 13) return kInvalidValue;
    const int on_machine = visible_devices()[static_cast<std::size_t>(device)];
    std::snprintf(text, static_cast<std::size_t>(bytes), "0000:%02X:00.0", on_machine + 1);
    return kSuccess;
  });
}

CudaError cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call(__func__, [&] {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return kSuccess;
  });
}

CudaError cudaDeviceSynchronize() {
  return call_outside_capture(__func__, [] {
    wait_for_device(current_device());
    return broken(current_device());
  });
}
