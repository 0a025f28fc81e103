// SPDX-License-Identifier: MIT
// Fills the table of NCCL; see nccl_api.h.
#include "comm/nccl/nccl_api.h"

#include <ddprun/error.h>

#include <vector>

#include <fmt/core.h>
#include <fmt/format.h>

#include "cuda/shared_library.h"

namespace ddprun {
namespace {

constexpr const char* kVariable = "DDPRUN_NCCL_LIB";

const LibrarySearch& where_to_look() {
  static const LibrarySearch search = {
      kVariable, {"libnccl.so.2"}, {"nvidia/nccl/lib/libnccl.so.2"}};
  return search;
}

void find_functions(const SharedLibrary& library, NcclApi& api) {
  std::vector<std::string> missing;
  const auto require = [&](const char* name, auto& slot) { library.find(name, slot, missing); };
  require("ncclGetUniqueId", api.ncclGetUniqueId);
  require("ncclCommInitRankConfig", api.ncclCommInitRankConfig);
  require("ncclCommFinalize", api.ncclCommFinalize);
  require("ncclCommDestroy", api.ncclCommDestroy);
  require("ncclCommAbort", api.ncclCommAbort);
  require("ncclCommGetAsyncError", api.ncclCommGetAsyncError);
  require("ncclAllReduce", api.ncclAllReduce);
  require("ncclBroadcast", api.ncclBroadcast);
  require("ncclRedOpCreatePreMulSum", api.ncclRedOpCreatePreMulSum);
  require("ncclRedOpDestroy", api.ncclRedOpDestroy);
  require("ncclGetErrorString", api.ncclGetErrorString);
  require("ncclGetLastError", api.ncclGetLastError);
  if (!missing.empty())
    throw DeviceError(fmt::format("NCCL {} at {} lacks {}; set {} to a complete libnccl.so.2",
                                  nccl_version_text(api.version), library.description(),
                                  fmt::join(missing, ", "), kVariable));
}

NcclApi functions_of(const SharedLibrary& library) {
  NcclApi api;
  api.path = library.path();
  api.loaded_before = library.loaded_before();
  api.test_double = library.test_double();
  // The version first: else a library that is too old is said to lack something.
  library.find("ncclGetVersion", api.ncclGetVersion);
  if (api.ncclGetVersion == nullptr || api.ncclGetVersion(&api.version) != kNcclSuccess)
    throw DeviceError(
        fmt::format("{} does not tell its version; is it NCCL?", library.description()));
  if (api.version < kNcclFloor)
    throw DeviceError(
        fmt::format("found NCCL {} at {}, needed {} or newer; set {} to a newer libnccl.so.2",
                    nccl_version_text(api.version), library.description(),
                    nccl_version_text(kNcclFloor), kVariable));
  find_functions(library, api);
  return api;
}

const LoadedApi<NcclApi>& loaded() {
  static const auto once = LoadedApi<NcclApi>::load(where_to_look(), functions_of);
  return once;
}

}  // namespace

const NcclApi& nccl_api() {
  if (!why_no_nccl().empty()) throw DeviceError("[nccl] loading: " + why_no_nccl());
  return loaded().api;
}

const std::string& why_no_nccl() { return loaded().why_not; }

std::string nccl_version_text(int version) {
  // Up to 2.8 the major number counted thousands: 2804, but 21003.
  const int unit = version < 10000 ? 1000 : 10000;
  return fmt::format("{}.{}.{}", version / unit, version % unit / 100, version % 100);
}

}  // namespace ddprun
