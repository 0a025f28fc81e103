// SPDX-License-Identifier: MIT
// Counts CPUs and GPUs; see machine.h.
#include "machine.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <vector>

#include <sched.h>

#include "base/env.h"

namespace ddprun {
namespace {

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n";
  const auto begin = std::min(text.find_first_not_of(kBlanks), text.size());
  text.remove_prefix(begin);
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

std::optional<int> whole_cpus(std::string_view quota_us, std::string_view period_us) {
  const auto quota = parse_int(trimmed(quota_us));  // "max" and -1: no limit
  const auto period = parse_int(trimmed(period_us));
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<int>(
      std::clamp<std::int64_t>(*quota / *period, 1, std::numeric_limits<int>::max()));
}

/// Version 2: "<quota> <period>" in one file.
std::optional<int> quota_of_v2(const std::filesystem::path& group) {
  const std::string text = read_text(group / "cpu.max");
  const auto fields = split(trimmed(text), ' ');
  return fields.size() == 2 ? whole_cpus(fields[0], fields[1]) : std::nullopt;
}

std::optional<int> quota_of_v1(const std::filesystem::path& group) {
  return whole_cpus(read_text(group / "cpu.cfs_quota_us"), read_text(group / "cpu.cfs_period_us"));
}

int cpus_in_affinity_mask() {
  // The kernel's mask may be wider than cpu_set_t; it says EINVAL until it fits.
  for (std::size_t cpus = CPU_SETSIZE; cpus <= 1U << 20U; cpus *= 2) {
    std::vector<std::uint64_t> mask(cpus / 64);
    auto* const set = reinterpret_cast<cpu_set_t*>(mask.data());
    const std::size_t bytes = cpus / 8;
    if (::sched_getaffinity(0, bytes, set) == 0) return CPU_COUNT_S(bytes, set);
    if (errno != EINVAL) break;
  }
  return 1;
}

/// Entries of a directory whose name is `prefix` and then a digit.
int count_entries(const std::filesystem::path& directory, std::string_view prefix) {
  int count = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(prefix) && name.size() > prefix.size() && name[prefix.size()] >= '0' &&
        name[prefix.size()] <= '9')
      ++count;
  }
  return count;
}

/// A container sees every GPU in /proc but has device nodes of its own ones only; elsewhere the
/// nodes may not be made yet.
int present_gpus() {
  const int nodes = count_entries("/dev", "nvidia");
  return nodes > 0 ? nodes : count_entries("/proc/driver/nvidia/gpus", "");
}

}  // namespace

std::optional<int> cpus_in_quota(const std::filesystem::path& cgroup_root,
                                 std::string_view membership) {
  std::optional<int> least;
  const auto limit_to = [&least](std::optional<int> cpus) {
    if (cpus) least = std::min(least.value_or(*cpus), *cpus);
  };
  for (const std::string_view line : split(membership, '\n')) {  // "id:controllers:/path"
    const auto fields = split(line, ':');
    if (fields.size() < 3) continue;
    const auto controllers = split(fields[1], ',');
    const bool v2 = fields[1].empty();
    if (!v2 && std::find(controllers.begin(), controllers.end(), "cpu") == controllers.end())
      continue;
    const std::filesystem::path root = v2 ? cgroup_root : cgroup_root / "cpu";
    std::filesystem::path group = root;
    limit_to(v2 ? quota_of_v2(group) : quota_of_v1(group));
    for (const std::string_view part : split(fields[2], '/')) {
      if (part.empty()) continue;
      group /= part;
      limit_to(v2 ? quota_of_v2(group) : quota_of_v1(group));
    }
  }
  return least;
}

int usable_cpus() {
  const int cpus = std::max(1, cpus_in_affinity_mask());
  const auto quota = cpus_in_quota("/sys/fs/cgroup", read_text("/proc/self/cgroup"));
  return std::min(cpus, quota.value_or(cpus));
}

int gpus_in_list(std::string_view list, int present) {
  constexpr std::string_view kMig = "MIG-";
  if (present == 0) return 0;  // whatever the names say
  if (trimmed(list).starts_with(kMig)) return 1;
  std::vector<std::string_view> seen;
  for (const std::string_view entry : split(list, ',')) {
    const std::string_view name = trimmed(entry);
    const auto index = parse_int(name);
    const bool device = index ? *index >= 0 && *index < present : name.starts_with("GPU-");
    if (!device) break;
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) return 0;
    seen.push_back(name);
  }
  return static_cast<int>(seen.size());
}

int visible_gpus() {
  const int present = present_gpus();
  const auto list = get_env("CUDA_VISIBLE_DEVICES");
  return list ? gpus_in_list(*list, present) : present;
}

}  // namespace ddprun
