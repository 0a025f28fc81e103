// SPDX-License-Identifier: MIT
// What all attempts of one run share.
#pragma once

#include <string>
#include <vector>

#include <unistd.h>

#include "base/env.h"
#include "console.h"
#include "descriptor_limit.h"
#include "loop.h"
#include "reaper.h"
#include "signal_state.h"
#include "spawn_child.h"

namespace ddprun {

/// The order of construction matters: signals and limits as found and the caller's descriptors
/// first, then the reaper, which must hold nothing that is opened later.
struct RunContext {
  explicit RunContext(const std::string& token)
      : job_tokens(get_env("DDPRUN_JOB").value_or("")),
        reaper(token),
        console(loop, STDOUT_FILENO, STDERR_FILENO) {
    job_tokens += (job_tokens.empty() ? "" : ":") + token;
  }

  SignalState signals;
  DescriptorLimit limit;
  std::vector<int> keep = open_descriptors();  // what a forked function keeps open
  std::string job_tokens;                      // "outer:inner": this job and those it is part of
  Reaper reaper;
  Loop loop;
  Console console;
};

}  // namespace ddprun
