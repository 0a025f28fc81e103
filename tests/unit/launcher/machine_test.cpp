// SPDX-License-Identifier: MIT
// machine: CPUs under a quota, GPUs under CUDA_VISIBLE_DEVICES.
#include "machine.h"

#include <fstream>
#include <thread>

#include <doctest/doctest.h>
#include <sched.h>

#include "support/temp_dir.h"

using namespace ddprun;

namespace {

void write(const std::filesystem::path& path, const char* text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

}  // namespace

TEST_SUITE("launcher") {
  TEST_CASE("machine: the quota is the least on the way to the root, in whole CPUs") {
    const ddprun::test::TempDir dir;
    const auto& root = dir.path();
    CHECK(cpus_in_quota(root, "0::/a/b\n") == std::nullopt);
    write(root / "a/b/cpu.max", "max 100000\n");
    CHECK(cpus_in_quota(root, "0::/a/b\n") == std::nullopt);
    write(root / "a/b/cpu.max", "800000 100000\n");
    CHECK(cpus_in_quota(root, "0::/a/b\n") == 8);
    write(root / "a/cpu.max", "250000 100000\n");
    CHECK(cpus_in_quota(root, "0::/a/b\n") == 2);
    write(root / "a/cpu.max", "50000 100000\n");
    CHECK(cpus_in_quota(root, "0::/a/b\n") == 1);
    write(root / "cpu.max", "300000 100000\n");
    CHECK(cpus_in_quota(root, "0::/\n") == 3);
    for (const char* odd : {"", "x", "100000", "1 0", "-1 100000", "a b c"}) {
      CAPTURE(odd);
      write(root / "c/cpu.max", odd);
      CHECK(cpus_in_quota(root, "0::/c\n") == 3);
    }
    CHECK(cpus_in_quota(root, "garbage\n\n1:\n") == std::nullopt);
  }

  TEST_CASE("machine: a quota of cgroup version 1 counts as well") {
    const ddprun::test::TempDir dir;
    write(dir.path() / "cpu/job/cpu.cfs_quota_us", "400000\n");
    write(dir.path() / "cpu/job/cpu.cfs_period_us", "100000\n");
    write(dir.path() / "cpu/free/cpu.cfs_quota_us", "-1\n");
    write(dir.path() / "cpu/free/cpu.cfs_period_us", "100000\n");
    CHECK(cpus_in_quota(dir.path(), "5:memory:/job\n4:cpu,cpuacct:/job\n") == 4);
    CHECK(cpus_in_quota(dir.path(), "4:cpu,cpuacct:/free\n") == std::nullopt);
    CHECK(cpus_in_quota(dir.path(), "4:cpuset:/job\n") == std::nullopt);
  }

  TEST_CASE("machine: usable CPUs follow the affinity mask") {
    std::thread([] {  // the mask is the thread's own
      cpu_set_t before;
      REQUIRE(::sched_getaffinity(0, sizeof before, &before) == 0);
      CHECK(usable_cpus() >= 1);
      CHECK(usable_cpus() <= CPU_COUNT(&before));
      cpu_set_t one;
      CPU_ZERO(&one);
      for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu)
        if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
      REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
      CHECK(usable_cpus() == 1);
    })
        .join();
  }

  TEST_CASE("machine: CUDA_VISIBLE_DEVICES counts as CUDA reads it") {
    struct Case {
      const char* list;
      int count;
    };
    for (const Case& c :
         {Case{"", 0}, Case{"-1", 0}, Case{"0", 1}, Case{"2,3", 2}, Case{"3, 1", 2},
          Case{"0,1,-1,2", 2}, Case{"0,4,1", 1}, Case{"0,0", 0}, Case{"1,0,1", 0},
          Case{"GPU-1234abcd", 1}, Case{"GPU-12,GPU-34", 2}, Case{"GPU-12,GPU-12", 0},
          Case{"MIG-aa", 1}, Case{"MIG-aa,MIG-bb", 1}, Case{"MIG-GPU-12/1/0", 1}, Case{"none", 0},
          Case{"NoDevFiles", 0}, Case{"0,,1", 1}}) {
      CAPTURE(c.list);
      CHECK(gpus_in_list(c.list, 4) == c.count);
    }
  }

  TEST_CASE("machine: no list names a GPU where there is none") {
    for (const char* list : {"", "0", "0,1", "all", "GPU-aa", "MIG-aa"}) {
      CAPTURE(list);
      CHECK(gpus_in_list(list, 0) == 0);
    }
  }
}
