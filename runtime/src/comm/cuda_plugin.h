// SPDX-License-Identifier: MIT
// What libddprun_cuda.so does for the rest of the runtime, which knows no CUDA. The plugin is
// opened when a GPU is first asked for; programs of machines without one never notice it.
#pragma once

#include <ddprun/backend.h>
#include <ddprun/cuda.h>
#include <ddprun/deadline.h>
#include <ddprun/export.h>
#include <ddprun/store.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "base/device_kernels.h"

namespace ddprun {

struct NcclBackendOptions {
  int rank = 0;
  int size = 1;
  int device = 0;                     // index of this rank's GPU among those it may see
  std::chrono::milliseconds timeout;  // of the set-up
};

/// Threads: any.
class DDPRUN_API CudaPlugin {
 public:
  CudaPlugin() = default;
  CudaPlugin(const CudaPlugin&) = delete;
  CudaPlugin& operator=(const CudaPlugin&) = delete;
  virtual ~CudaPlugin() = default;

  /// Empty when this process can use GPU `device` in a group of `size` ranks, for which it needs
  /// NCCL if there are several; else why not, in one line without a tag.
  virtual std::string why_unavailable(int device, int size) = 0;
  /// 0 when there are none.
  virtual int device_count() = 0;
  /// Selects the device in the calling thread and meets the other ranks through the store (null is
  /// enough for size 1). `host` works among the same ranks; it outlives the backend, learns of its
  /// failures by abort(), and its peer_failure() is asked for deaths.
  /// Throws: UsageError when ranks do not fit together (two on one GPU, different versions of
  ///         NCCL), TimeoutError naming who is missing, DeviceError.
  virtual std::unique_ptr<Backend> make_nccl_backend(std::shared_ptr<Store> store, Backend& host,
                                                     const NcclBackendOptions& options) = 0;

  /// Behind the functions of ddprun/cuda.h, which have checked what they can without a GPU.
  /// Holds `bytes` at `contents`, or zeros if that is null. Blocks: until it does.
  virtual std::shared_ptr<std::byte[]> allocate(std::size_t bytes, int device,
                                                const void* contents) = 0;
  virtual void fill_zero(TensorView target, Stream stream) = 0;
  /// Blocks: until `stream` has done what is on it and the bytes are in host memory.
  virtual void read(void* to, const void* from, std::size_t bytes, Stream stream,
                    Deadline deadline) = 0;
  /// `arguments` is the kernel's struct of device_kernels.h; `blocks`: how many have work.
  virtual void launch(DeviceKernel kernel, const void* arguments, std::size_t blocks,
                      Stream stream) = 0;
};

/// The plugin of this process: linked into it, else libddprun_cuda.so beside libddprun.so, loaded
/// at the first call. Null when there is none; `why_no_cuda_plugin` then says why in one line.
DDPRUN_API CudaPlugin* cuda_plugin();
DDPRUN_API const std::string& why_no_cuda_plugin();
/// Whether a plugin was found, also one that cannot be used.
DDPRUN_API bool built_with_cuda();
/// Throws: DeviceError "[cuda] `what`: ..." when there is none.
CudaPlugin& require_cuda_plugin(const char* what);

}  // namespace ddprun

/// The one symbol that is looked up in the plugin. `version` is ddprun's; null for another one.
extern "C" DDPRUN_API ddprun::CudaPlugin* ddprun_cuda_plugin(const char* version);
