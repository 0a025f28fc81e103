// SPDX-License-Identifier: MIT
// Words for NCCL's failures; see nccl_error.h.
#include "comm/nccl/nccl_error.h"

#include <fmt/core.h>

#include "base/env.h"

namespace ddprun {

std::chrono::milliseconds time_for_culprit(NcclResult result) {
  const bool of_any_rank = result == kNcclRemoteError || result == kNcclSystemError;
  return std::chrono::milliseconds(of_any_rank ? 300 : 0);
}

std::string network_advice() {
  const auto interface = get_env("NCCL_SOCKET_IFNAME");
  return fmt::format(
      "interface {}; if ranks cannot reach each other: let their ports through the firewall, set "
      "NCCL_SOCKET_IFNAME to an interface that all have, or try NCCL_IB_DISABLE=1; "
      "NCCL_DEBUG=INFO shows more",
      interface ? fmt::format("NCCL_SOCKET_IFNAME={}", *interface) : "chosen by NCCL");
}

std::string describe(const NcclApi& api, std::string_view call, NcclResult result) {
  const char* const last = api.ncclGetLastError == nullptr ? "" : api.ncclGetLastError(nullptr);
  const std::string warning = last == nullptr || *last == '\0' ? "" : fmt::format(": {}", last);
  const bool may_be_the_network = result == kNcclSystemError || result == kNcclRemoteError;
  return fmt::format("{}: {} ({}){}; {}", call, api.ncclGetErrorString(result), result, warning,
                     may_be_the_network ? network_advice() : "NCCL_DEBUG=INFO shows more");
}

}  // namespace ddprun
