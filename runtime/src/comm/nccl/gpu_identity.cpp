// SPDX-License-Identifier: MIT
// Compares what ranks say about their GPUs; see gpu_identity.h.
#include "comm/nccl/gpu_identity.h"

#include <ddprun/error.h>

#include <array>
#include <cstddef>
#include <fstream>
#include <map>
#include <utility>

#include <fmt/core.h>
#include <unistd.h>

#include "base/env.h"
#include "base/log.h"
#include "comm/nccl/nccl_api.h"
#include "comm/nccl/nccl_environment.h"
#include "comm/rank_texts.h"

namespace ddprun {
namespace {

constexpr auto kFields = {&GpuIdentity::host,    &GpuIdentity::hostname,  &GpuIdentity::bus_id,
                          &GpuIdentity::nccl,    &GpuIdentity::nccl_path, &GpuIdentity::cuda,
                          &GpuIdentity::failure, &GpuIdentity::fault};

std::string this_hostname() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string this_host(const std::string& hostname) {
  if (const auto given = get_env("NCCL_HOSTID")) return *given;
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return hostname + boot;
}

std::string bus_id_of(const CudaApi& api, int device) {
  std::array<char, 32> text{};
  require_cuda(api, api.cudaDeviceGetPCIBusId(text.data(), text.size(), device),
               "cudaDeviceGetPCIBusId");
  return text.data();
}

std::string cuda_versions(const CudaApi& api) {
  int runtime = 0;
  int driver = 0;
  require_cuda(api, api.cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  require_cuda(api, api.cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  return fmt::format("{} (driver {})", cuda_version_text(runtime), cuda_version_text(driver));
}

template <class Fault>
void require_none(std::string GpuIdentity::*fault, const std::vector<GpuIdentity>& all) {
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (!(all[rank].*fault).empty())
      throw Fault(fmt::format("[nccl] set-up: rank {} on host {}: {}", rank, all[rank].hostname,
                              all[rank].*fault));
}

void require_one_version(const std::vector<GpuIdentity>& all) {
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank].nccl != all[0].nccl)
      throw UsageError(fmt::format(
          "[nccl] set-up: rank {} on host {} has NCCL {} at {}, but rank 0 on host {} has {} at "
          "{}; give all ranks the same one, with DDPRUN_NCCL_LIB if need be",
          rank, all[rank].hostname, all[rank].nccl, all[rank].nccl_path, all[0].hostname,
          all[0].nccl, all[0].nccl_path));
}

void require_own_gpus(const std::vector<GpuIdentity>& all) {
  std::map<std::pair<std::string, std::string>, std::size_t> user_of;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const auto [user, is_first] =
        user_of.try_emplace(std::pair(all[rank].host, all[rank].bus_id), rank);
    if (!is_first)
      throw UsageError(fmt::format(
          "[nccl] set-up: ranks {} and {} on host {} both use GPU {}; set the device to LOCAL_RANK "
          "or lower --nproc_per_node",
          user->second, rank, all[rank].hostname, all[rank].bus_id));
  }
}

void warn(const std::vector<GpuIdentity>& all, const GpuIdentity& own) {
  for (const std::string& warning : own.warnings) log(LogLevel::warning, "nccl", "{}", warning);
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank].cuda != own.cuda)
      log(LogLevel::warning, "nccl", "rank {} on host {} has CUDA {}, but rank 0 has {}", rank,
          all[rank].hostname, all[rank].cuda, own.cuda);
}

}  // namespace

GpuIdentity GpuIdentity::of_this_process(int device) {
  GpuIdentity own;
  own.hostname = this_hostname();
  own.host = this_host(own.hostname);
  auto findings = check_nccl_environment(nccl_environment(), interface_addresses());
  own.fault = std::move(findings.fault);
  own.warnings = std::move(findings.warnings);
  try {
    const CudaApi& cuda = cuda_api();
    require_cuda(cuda, cuda.cudaSetDevice(device), "cudaSetDevice");
    own.bus_id = bus_id_of(cuda, device);
    own.cuda = cuda_versions(cuda);
    own.nccl = nccl_version_text(nccl_api().version);
    own.nccl_path = nccl_api().path;
  } catch (const DeviceError& error) {
    own.failure = error.what();
  }
  return own;
}

void check_identities(Store& store, int rank, int size, const GpuIdentity& own,
                      std::chrono::milliseconds timeout, Deadline deadline) {
  const RankTexts texts{"nccl", "gpu", timeout};
  store.set(key_of(texts, rank), encode_fields(own, kFields));
  std::vector<GpuIdentity> all;
  for (int r = 0; r < size; ++r)
    all.push_back(decode_fields<GpuIdentity>(text_of(texts, store, r, size, deadline), kFields));
  require_none<DeviceError>(&GpuIdentity::failure, all);
  if (rank == 0) warn(all, own);
  require_none<UsageError>(&GpuIdentity::fault, all);
  require_one_version(all);
  require_own_gpus(all);
}

}  // namespace ddprun
