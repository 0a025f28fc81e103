// SPDX-License-Identifier: MIT
// Loads CUDA and NCCL as a worker would and prints what came of it, one "name=value" a line.
// usage: load_probe cuda | nccl | why DEVICE SIZE | group BACKEND SIZE [DEVICE]
#include <ddprun/error.h>
#include <ddprun/hash_store.h>
#include <ddprun/process_group.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/core.h>

#include "comm/cuda_plugin.h"
#include "comm/nccl/nccl_api.h"
#include "support/group_of_threads.h"

using namespace ddprun;

namespace {

/// What several threads that ask at once, and one that asks later, are told.
template <class Load>
void print_loaded(Load load) {
  const auto errors = test::errors_of_ranks(4, [&](int) { load(); });
  std::string later;
  try {
    const auto& api = load();
    fmt::print("path={}\ntest_double={}\n", api.path, api.test_double);
  } catch (const DeviceError& error) {
    later = error.what();
    fmt::print("error={}\n", later);
  }
  for (const std::string& error : errors) fmt::print("same={}\n", error == later);
}

void print_mapped() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    for (const char* library : {"libcuda", "libnccl"})
      if (line.find(library) != line.npos) fmt::print("mapped={}\n", line);
}

/// Ranks as threads, each with the device of its rank or all with the given one.
void print_group(const char* backend, int size, std::optional<int> device) {
  const auto store = make_hash_store();
  const auto errors = test::errors_of_ranks(size, [&](int rank) {
    const ProcessGroup group(
        store, rank, size,
        {.backend = backend, .timeout = std::chrono::seconds(20), .device = device.value_or(rank)});
    fmt::print("backend={}\n", group.backend());
  });
  for (const std::string& error : errors)
    if (!error.empty()) fmt::print("error={}\n", error);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (what == "cuda") print_loaded(cuda_api);
  if (what == "nccl") {
    print_loaded(nccl_api);
    if (why_no_nccl().empty())
      fmt::print("version={}\nloaded_before={}\n", nccl_version_text(nccl_api().version),
                 nccl_api().loaded_before);
  }
  if (what == "why" && argc > 3) {
    CudaPlugin& plugin = *cuda_plugin();
    for (int i = 0; i < 2; ++i)
      fmt::print("why={}\n", plugin.why_unavailable(std::atoi(argv[2]), std::atoi(argv[3])));
    fmt::print("count={}\n", plugin.device_count());
    if (why_no_cuda().empty()) fmt::print("last_error={}\n", cuda_api().cudaGetLastError());
  }
  if (what == "group" && argc > 3)
    print_group(argv[2], std::atoi(argv[3]),
                argc > 4 ? std::optional(std::atoi(argv[4])) : std::nullopt);
  print_mapped();
}
