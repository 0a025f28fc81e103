// SPDX-License-Identifier: MIT
// What this machine lends to this process: CPUs it may use, GPUs it can see.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace ddprun {

/// CPUs of the affinity mask, or the whole CPUs of the cgroup quota if that is less; at least 1.
int usable_cpus();

/// What CUDA would show a worker, without loading it: CUDA_VISIBLE_DEVICES if set, else the devices
/// there are.
int visible_gpus();

/// Whole CPUs (at least 1) that the quotas on the way from this cgroup to the root allow; empty:
/// no quota. `membership` is the text of /proc/self/cgroup; both cgroup versions.
std::optional<int> cpus_in_quota(const std::filesystem::path& cgroup_root,
                                 std::string_view membership);

/// How many of `present` devices CUDA_VISIBLE_DEVICES=`list` leaves, as in CUDA: the first entry
/// that names no device (-1, a number too large) ends the list, one that is there twice empties it,
/// and of several MIG instances a process sees one. GPU-... and MIG-... are taken to be there.
int gpus_in_list(std::string_view list, int present);

}  // namespace ddprun
