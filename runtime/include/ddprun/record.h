// SPDX-License-Identifier: MIT
// Turns an uncaught exception of a worker into a report that the launcher can read.
// https://docs.pytorch.org/docs/stable/elastic/errors.html
#pragma once

#include <functional>

#include <ddprun/export.h>
#include <ddprun/worker_env.h>

namespace ddprun {

using TrainFn = std::function<int(const WorkerEnv&)>;

/// Returns fn(env). When it throws, writes the exception's type and text to env.error_file in
/// PyTorch's error.json format (if one is asked for), prints one line to stderr, and returns 1. A
/// text over 64 KiB is cut, and says so. Before that it makes stdout line-buffered, so that what a
/// rank prints is seen when it prints it.
DDPRUN_API int record(const TrainFn& fn, const WorkerEnv& env);

}  // namespace ddprun
