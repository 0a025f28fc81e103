// SPDX-License-Identifier: MIT
// Fake CUDA runtime: kernels. A launch copies the arguments and runs the body of that name on the
// stream's thread. Two ways lead to a kernel: by its name from a library that is loaded as data, or
// by the address of the host function that nvcc made for it.
// Stricter than reality: the device code itself is never looked at; a kernel without a body here is
// "not found"; an argument that points into memory of another device breaks the device at the
// launch, not later.
#include <cstring>
#include <shared_mutex>

#include <cxxabi.h>

#include "doubles/fake_cudart_state.h"
#include "doubles/kernel_body.h"

namespace ddprun::doubles {
namespace {

struct Kernel : Kept {
  static constexpr std::uint32_t kMagic = 0x4b45524e;
  explicit Kernel(const KernelBody* its_body) : body(its_body) {}
  const std::uint32_t magic = kMagic;
  const KernelBody* const body;  // null: there is none
};

struct Library : Kept {};

struct Registry {
  std::shared_mutex mutex;
  std::map<std::string, KernelBody> bodies;           // guarded by mutex
  std::map<const void*, std::string> host_functions;  // guarded by mutex
  std::map<std::string, Kernel*> kernels;             // guarded by mutex
};

Registry& registry() {
  static auto& registry = *new Registry;
  return registry;
}

struct Configuration {
  CudaDim3 grid, block;
  std::size_t shared_bytes;
  CudaStream stream;
};
thread_local std::vector<Configuration> configurations;

/// "void digits::relu<float>(float*, int)" of a mangled name, without result and parameters.
std::string plain_name(const std::string& mangled) {
  int status = 0;
  char* const text = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  if (status != 0) return mangled;
  std::string name = text;
  std::free(text);
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    depth += name[i] == '<' ? 1 : name[i] == '>' ? -1 : 0;
    if (name[i] != '(' || depth > 0 || name.compare(i, 11, "(anonymous ") == 0) continue;
    name.resize(i);
    break;
  }
  return name.starts_with("void ") ? name.substr(5) : name;
}

/// Makes it at the first call. Mutex held.
Kernel* kernel_named(const std::string& name) {
  Kernel*& kernel = registry().kernels[name];
  if (kernel && kernel->body) return kernel;
  const auto& bodies = registry().bodies;
  auto found = bodies.find(name);
  if (found == bodies.end()) found = bodies.find(plain_name(name));
  kernel = make_kept<Kernel>(found == bodies.end() ? nullptr : &found->second);
  return kernel;
}

CudaError kernel_of_host_function(CudaKernel* kernel, const void* function) {
  const std::unique_lock lock(registry().mutex);
  const auto found = registry().host_functions.find(function);
  if (found == registry().host_functions.end()) return kInvalidDeviceFunction;
  Kernel* const named = kernel_named(found->second);
  if (!named->body) refuse(kInvalidDeviceFunction, "no CPU body for %s", found->second.c_str());
  *kernel = named;
  return kSuccess;
}

/// The bytes of the arguments of a launch, each where any type may be.
class Arguments {
 public:
  static constexpr std::size_t kAlignment = alignof(std::max_align_t);

  Arguments(const KernelBody& body, void** arguments) {
    for (std::size_t i = 0; i < body.argument_bytes.size(); ++i) {
      offsets_.push_back(units_.size());
      units_.resize(units_.size() + (body.argument_bytes[i] + sizeof(Unit) - 1) / sizeof(Unit));
      std::memcpy(&units_[offsets_[i]], arguments[i], body.argument_bytes[i]);
    }
  }
  /// Turns addresses of device memory into those of its bytes; the devices they are of.
  std::vector<int> find_pointers() {
    std::vector<int> devices;
    for (Unit& unit : units_) {
      for (std::uintptr_t& word : unit.words) {
        if (!is_device_address(word)) continue;
        const auto pointer = reinterpret_cast<const void*>(word);
        devices.push_back(double_cuda_device_of(pointer));
        word = reinterpret_cast<std::uintptr_t>(double_cuda_bytes(pointer));
      }
    }
    return devices;
  }
  std::vector<void*> pointers() {
    std::vector<void*> result;
    for (const std::size_t offset : offsets_) result.push_back(&units_[offset]);
    return result;
  }

 private:
  struct alignas(kAlignment) Unit {
    std::uintptr_t words[kAlignment / sizeof(std::uintptr_t)];
  };
  std::vector<Unit> units_;
  std::vector<std::size_t> offsets_;
};

bool is_kernel(const void* handle) {
  const auto* const kernel = static_cast<const Kernel*>(handle);
  return kernel && kernel->magic == Kernel::kMagic && kernel->body;
}

bool possible(CudaDim3 grid, CudaDim3 block, std::size_t shared_bytes) {
  const auto threads = std::uint64_t{block.x} * block.y * block.z;
  return grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x < 1u << 31 && grid.y < 1u << 16 &&
         grid.z < 1u << 16 && threads > 0 && threads <= 1024 && block.z <= 64 &&
         shared_bytes <= 227 * 1024;
}

CudaError launch(const Kernel* kernel, CudaDim3 grid, CudaDim3 block, void** arguments,
                 std::size_t shared_bytes, CudaStream handle) {
  Stream* stream = nullptr;
  const CudaError error = find_stream(handle, stream);
  if (error != kSuccess) return error;
  if (!is_kernel(kernel)) return kInvalidDeviceFunction;
  const KernelBody& body = *kernel->body;
  if (!possible(grid, block, shared_bytes)) return kInvalidConfiguration;
  if (stream->device != current_device())
    return refuse(kInvalidResourceHandle, "%s: a stream of device %d on device %d",
                  body.name.c_str(), stream->device, current_device());
  Arguments copy(body, arguments);
  for (const int device : copy.find_pointers()) {
    if (device == stream->device) continue;
    refuse(kIllegalAddress, "%s: memory of device %d on device %d", body.name.c_str(), device,
           stream->device);
    break_device(stream->device, kIllegalAddress);
    return kSuccess;  // a launch does not report it; what comes after does
  }
  return submit(*stream, [&body, copy, grid, block]() mutable {
    body.run(copy.pointers().data(), grid, block);
  });
}

}  // namespace

void add_kernel(KernelBody body) {
  const std::unique_lock lock(registry().mutex);
  std::string name = body.name;
  registry().bodies.insert_or_assign(std::move(name), std::move(body));
}

}  // namespace ddprun::doubles

using namespace ddprun::doubles;

CudaError cudaLibraryLoadData(CudaLibrary* library, const void* code, int*, void**, unsigned, int*,
                              void**, unsigned) {
  return call(__func__, [&] {
    if (!library || !code) return kInvalidValue;
    *library = make_kept<Library>();
    return kSuccess;
  });
}

CudaError cudaLibraryGetKernel(CudaKernel* kernel, CudaLibrary library, const char* name) {
  return call(__func__, [&] {
    if (!kernel || !library || !name) return kInvalidValue;
    const std::unique_lock lock(registry().mutex);
    Kernel* const named = kernel_named(name);
    if (!named->body) return refuse(kSymbolNotFound, "no CPU body for kernel %s", name);
    *kernel = named;
    return kSuccess;
  });
}

CudaError cudaLibraryUnload(CudaLibrary library) {
  return call(__func__, [&] { return library ? kSuccess : kInvalidValue; });
}

CudaError cudaLaunchKernel(const void* function, CudaDim3 grid, CudaDim3 block, void** arguments,
                           std::size_t shared_bytes, CudaStream stream) {
  return call(__func__, [&] {
    CudaKernel kernel = nullptr;
    if (kernel_of_host_function(&kernel, function) != kSuccess)
      kernel = const_cast<void*>(function);
    return launch(static_cast<Kernel*>(kernel), grid, block, arguments, shared_bytes, stream);
  });
}

CudaError cudaFuncGetAttributes(void* attributes, const void* kernel) {
  return call(__func__, [&] {
    if (!attributes) return kInvalidValue;
    return is_kernel(kernel) ? kSuccess : kInvalidDeviceFunction;
  });
}

CudaError cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel,
                                                        int threads, std::size_t) {
  return call(__func__, [&] {
    if (!blocks || threads <= 0) return kInvalidValue;
    if (!is_kernel(kernel)) return kInvalidDeviceFunction;
    constexpr int kThreadsPerMultiprocessor = 1024;  // as if registers allowed no more
    *blocks = threads > kThreadsPerMultiprocessor ? 0 : kThreadsPerMultiprocessor / threads;
    return kSuccess;
  });
}

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}

void __cudaRegisterFatBinaryEnd(void**) {}

void __cudaUnregisterFatBinary(void**) {}

char __cudaInitModule(void**) { return 1; }

void __cudaRegisterFunction(void**, const char* host_function, char*, const char* name, int, void*,
                            void*, void*, void*, int*) {
  const std::unique_lock lock(registry().mutex);
  registry().host_functions[host_function] = name;
}

void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}

unsigned __cudaPushCallConfiguration(CudaDim3 grid, CudaDim3 block, std::size_t shared_bytes,
                                     CudaStream stream) {
  configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}

CudaError __cudaPopCallConfiguration(CudaDim3* grid, CudaDim3* block, std::size_t* shared_bytes,
                                     void* stream) {
  if (configurations.empty()) return remember(kInvalidConfiguration);
  const Configuration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared_bytes = last.shared_bytes;
  *static_cast<CudaStream*>(stream) = last.stream;
  return kSuccess;
}

CudaError __cudaGetKernel(CudaKernel* kernel, const void* host_function) {
  return remember(kernel_of_host_function(kernel, host_function));
}

CudaError __cudaLaunchKernel(CudaKernel kernel, CudaDim3 grid, CudaDim3 block, void** arguments,
                             std::size_t shared_bytes, CudaStream stream) {
  return call(__func__, [&] {
    return launch(static_cast<Kernel*>(kernel), grid, block, arguments, shared_bytes, stream);
  });
}
