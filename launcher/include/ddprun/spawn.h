// SPDX-License-Identifier: MIT
// Runs a function as N ranks of one machine, each a process of its own.
// https://docs.pytorch.org/docs/stable/multiprocessing.html#torch.multiprocessing.spawn
#pragma once

#include <chrono>
#include <filesystem>

#include <ddprun/export.h>
#include <ddprun/launch.h>
#include <ddprun/record.h>

namespace ddprun {

struct SpawnOptions {
  std::filesystem::path log_dir;  // as --log_dir; empty: nothing is written
  std::chrono::milliseconds shutdown_timeout = std::chrono::seconds(30);
};

/// Forks `nprocs` ranks of `fn`, hosts their store, supervises them as ddprun does, and says how it
/// ended. Closures work; memory is copied at the fork, so what `fn` changes is not seen here.
/// Ranks hold the descriptors that were open at the call and find RANK and the other variables set.
/// Blocks:  until all ranks and their descendants are gone, except a descendant that began a session
///          of its own and executed no program: nothing marks it.
/// Threads: forks all ranks before it starts a thread of its own. Threads of the caller do not exist
///          in the ranks: do not hold a lock that fn needs. Ranks end when the calling thread ends.
/// Throws:  UsageError when nprocs < 1 or CUDA is already initialised in this process (a forked
///          process cannot use it). A rank's failure is not thrown.
DDPRUN_API RunResult run_spawn(const TrainFn& fn, int nprocs, const SpawnOptions& options = {});

/// As run_spawn, prints the launcher's report of a failure, and returns the job's exit code: 0, the
/// first failed rank's own, or 128 + signal.
DDPRUN_API int spawn(const TrainFn& fn, int nprocs, const SpawnOptions& options = {});

}  // namespace ddprun
