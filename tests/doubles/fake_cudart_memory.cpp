// SPDX-License-Identifier: MIT
// Fake CUDA runtime: memory. Device memory is a file in memory that is mapped twice: at the address
// that the program is given nothing can be read or written, so that host code which touches it
// dies as with a GPU; streams work on the other mapping. Fresh memory is all ones (NaN in every
// floating type), freed memory 0xEE; under AddressSanitizer the work of streams cannot leave an
// allocation either. cudaFree waits for the device.
// Stricter than reality: sizes of copies are checked; a copy of pageable memory is as asynchronous
// as one of page-locked memory; memory is filled only on streams of the current device.
#include <cstdlib>
#include <cstring>
#include <shared_mutex>

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <unistd.h>

#include "doubles/environment.h"
#include "doubles/fake_cudart_state.h"

namespace ddprun::doubles {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr int kHostToHost = 0, kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 3;

/// The memory of all devices, one behind the other.
class DeviceMemory {
 public:
  DeviceMemory() {
    const int file = ::memfd_create("fake-cuda-memory", MFD_CLOEXEC);
    if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes())) != 0) std::abort();
    given_ = map(file, PROT_NONE);
    real_ = map(file, PROT_READ | PROT_WRITE);
    ::close(file);
  }

  bool has(const void* pointer) const {
    const auto at = static_cast<const std::byte*>(pointer);
    return at >= given_ && at < given_ + bytes();
  }
  int device_of(const void* pointer) const { return static_cast<int>(offset(pointer) / of_each_); }
  std::byte* real(const void* pointer) const { return real_ + offset(pointer); }

  /// Null when there is not enough.
  void* allocate(int device, std::size_t size) {
    const std::unique_lock lock(mutex_);
    const std::size_t at = find_place(device, size);
    if (at == kNowhere) return nullptr;
    sizes_[at] = size;
    ASAN_POISON_MEMORY_REGION(real_ + at, padded(size));
    ASAN_UNPOISON_MEMORY_REGION(real_ + at, size);
    std::memset(real_ + at, 0xFF, size);
    return given_ + at;
  }

  bool is_allocation(const void* pointer) const {
    const std::shared_lock lock(mutex_);
    return has(pointer) && sizes_.contains(offset(pointer));
  }

  void free(void* pointer) {
    const std::unique_lock lock(mutex_);
    const auto found = sizes_.find(offset(pointer));
    std::memset(real_ + found->first, 0xEE, found->second);
    ASAN_POISON_MEMORY_REGION(real_ + found->first, found->second);
    sizes_.erase(found);
  }

  /// Bytes from a pointer to the end of its allocation.
  std::size_t room(const void* pointer) const {
    const std::shared_lock lock(mutex_);  // shared: readers are not ordered by it
    auto next = sizes_.upper_bound(offset(pointer));
    if (next == sizes_.begin()) return 0;
    --next;
    const std::size_t end = next->first + next->second;
    return end > offset(pointer) ? end - offset(pointer) : 0;
  }

 private:
  static constexpr std::size_t kNowhere = SIZE_MAX;

  std::size_t bytes() const { return of_each_ * kMaxDevices; }
  std::size_t offset(const void* pointer) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(pointer) - given_);
  }
  /// With a gap, so that no allocation ends where another begins.
  static std::size_t padded(std::size_t size) {
    return (size + 2 * kAlignment - 1) / kAlignment * kAlignment;
  }

  std::byte* map(int file, int protection) const {
    void* at = ::mmap(nullptr, bytes(), protection, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (at == MAP_FAILED) std::abort();
    return static_cast<std::byte*>(at);
  }

  /// The first gap on a device that is large enough.
  std::size_t find_place(int device, std::size_t size) const {
    const std::size_t begin = static_cast<std::size_t>(device) * of_each_;
    std::size_t at = begin;
    for (auto next = sizes_.lower_bound(begin); next != sizes_.end(); ++next) {
      if (next->first >= begin + of_each_ || next->first - at >= padded(size)) break;
      at = next->first + padded(next->second);
    }
    return at + size <= begin + of_each_ ? at : kNowhere;
  }

  const std::size_t of_each_ = static_cast<std::size_t>(environment_int("FAKE_CUDA_MEM_MB", 1024))
                               << 20;
  std::byte* given_ = nullptr;
  std::byte* real_ = nullptr;
  mutable std::shared_mutex mutex_;
  std::map<std::size_t, std::size_t> sizes_;  // by offset; guarded by mutex_
};

DeviceMemory& memory() {
  static auto& memory = *new DeviceMemory;
  return memory;
}

struct PageLocked {
  std::mutex mutex;
  std::map<const void*, std::size_t> sizes;  // guarded by mutex
};

PageLocked& page_locked() {
  static auto& memory = *new PageLocked;
  return memory;
}

bool fits(int kind, bool to_device, bool from_device) {
  switch (kind) {
    case kHostToHost:
      return !to_device && !from_device;
    case kHostToDevice:
      return to_device && !from_device;
    case kDeviceToHost:
      return !to_device && from_device;
    case kDeviceToDevice:
      return to_device && from_device;
    default:
      return kind == kCudaMemcpyDefault;
  }
}

CudaError copy(Stream& stream, void* to, const void* from, std::size_t bytes, int kind) {
  if (!fits(kind, memory().has(to), memory().has(from)))
    return refuse(kInvalidValue, "copy: kind %d does not fit the addresses %p and %p", kind, to,
                  from);
  if (double_cuda_room(to) < bytes || double_cuda_room(from) < bytes)
    return refuse(kInvalidValue, "copy: %zu bytes from %p to %p leave an allocation", bytes, from,
                  to);
  if (bytes == 0) return kSuccess;
  return submit(stream, [to = double_cuda_bytes(to), from = double_cuda_bytes(from), bytes] {
    std::memmove(to, from, bytes);
  });
}

CudaError fill(Stream& stream, void* to, int value, std::size_t bytes) {
  if (stream.device != current_device())
    return refuse(kInvalidResourceHandle, "fill: a stream of device %d on device %d", stream.device,
                  current_device());
  if (!memory().has(to) || double_cuda_room(to) < bytes)
    return refuse(kInvalidValue, "fill: %zu bytes at %p leave an allocation", bytes, to);
  if (bytes == 0) return kSuccess;
  return submit(stream,
                [to = double_cuda_bytes(to), value, bytes] { std::memset(to, value, bytes); });
}

CudaError allocate_page_locked(void** pointer, std::size_t bytes) {
  if (!pointer) return kInvalidValue;
  void* found = std::aligned_alloc(kAlignment, (bytes + kAlignment) / kAlignment * kAlignment);
  if (!found) return kMemoryAllocation;
  const std::lock_guard lock(page_locked().mutex);
  page_locked().sizes[found] = bytes;
  *pointer = found;
  return kSuccess;
}

}  // namespace

bool is_device_address(std::uintptr_t word) {
  return memory().has(reinterpret_cast<const void*>(word));
}

}  // namespace ddprun::doubles

using namespace ddprun::doubles;

void* double_cuda_bytes(const void* pointer) {
  return memory().has(pointer) ? memory().real(pointer) : const_cast<void*>(pointer);
}

std::size_t double_cuda_room(const void* pointer) {
  return memory().has(pointer) ? memory().room(pointer) : SIZE_MAX;
}

int double_cuda_device_of(const void* pointer) {
  return memory().has(pointer) ? memory().device_of(pointer) : -1;
}

CudaError cudaMalloc(void** pointer, std::size_t bytes) {
  return call_outside_capture(__func__, [&] {
    if (!pointer) return kInvalidValue;
    void* const found = bytes == 0 ? nullptr : memory().allocate(current_device(), bytes);
    if (bytes != 0 && !found) return kMemoryAllocation;
    *pointer = found;
    return kSuccess;
  });
}

CudaError cudaFree(void* pointer) {
  return call_outside_capture(__func__, [&] {
    if (!pointer) return kSuccess;
    if (!memory().is_allocation(pointer))
      return refuse(kInvalidValue, "cudaFree: %p is not an allocation", pointer);
    wait_for_device(memory().device_of(pointer));
    memory().free(pointer);
    return kSuccess;
  });
}

CudaError cudaMallocHost(void** pointer, std::size_t bytes) {
  return call_outside_capture(__func__, [&] { return allocate_page_locked(pointer, bytes); });
}

CudaError cudaHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  return call_outside_capture(__func__, [&] { return allocate_page_locked(pointer, bytes); });
}

CudaError cudaFreeHost(void* pointer) {
  return call_outside_capture(__func__, [&] {
    if (!pointer) return kSuccess;
    for (int device = 0; device < device_count(); ++device) wait_for_device(device);
    const std::lock_guard lock(page_locked().mutex);
    if (page_locked().sizes.erase(pointer) == 0)
      return refuse(kInvalidValue, "cudaFreeHost: %p is not an allocation", pointer);
    std::free(pointer);
    return kSuccess;
  });
}

CudaError cudaPointerGetAttributes(CudaPointerAttributes* attributes, const void* pointer) {
  return call(__func__, [&] {
    *attributes = {};
    void* const address = const_cast<void*>(pointer);
    if (memory().has(pointer)) {
      attributes->type = 2;
      attributes->device = memory().device_of(pointer);
      attributes->device_pointer = address;
      return kSuccess;
    }
    const std::lock_guard lock(page_locked().mutex);
    const auto& sizes = page_locked().sizes;
    auto next = sizes.upper_bound(pointer);
    const bool known = next != sizes.begin() &&
                       (--next, static_cast<const std::byte*>(pointer) <
                                    static_cast<const std::byte*>(next->first) + next->second);
    attributes->type = known ? 1 : 0;
    attributes->device = known ? current_device() : -2;
    attributes->device_pointer = known ? address : nullptr;
    attributes->host_pointer = address;
    return kSuccess;
  });
}

CudaError cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int kind,
                          CudaStream handle) {
  return call(__func__, [&] {
    Stream* stream = nullptr;
    const CudaError error = find_stream(handle, stream);
    return error != kSuccess ? error : copy(*stream, to, from, bytes, kind);
  });
}

CudaError cudaMemcpy(void* to, const void* from, std::size_t bytes, int kind) {
  return call_outside_capture(__func__, [&] {
    Stream* stream = nullptr;
    CudaError error = find_stream(nullptr, stream);
    if (error == kSuccess) error = copy(*stream, to, from, bytes, kind);
    if (error == kSuccess) submit_moment(*stream)->wait();
    return error != kSuccess ? error : broken(current_device());
  });
}

CudaError cudaMemsetAsync(void* to, int value, std::size_t bytes, CudaStream handle) {
  return call(__func__, [&] {
    Stream* stream = nullptr;
    const CudaError error = find_stream(handle, stream);
    return error != kSuccess ? error : fill(*stream, to, value, bytes);
  });
}

CudaError cudaMemset(void* to, int value, std::size_t bytes) {
  return call_outside_capture(__func__, [&] {
    Stream* stream = nullptr;
    const CudaError error = find_stream(nullptr, stream);
    return error != kSuccess ? error : fill(*stream, to, value, bytes);
  });
}
