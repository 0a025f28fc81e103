// SPDX-License-Identifier: MIT
// How the nodes of a job find each other: a Round is what they agreed on.
#pragma once

#include <ddprun/launch.h>

#include <cstdint>
#include <string>

#include "base/unique_fd.h"

namespace ddprun {

struct Round {
  int node_rank = 0;
  int node_count = 1;
  int first_rank = 0;  // global rank of local rank 0
  int world_size = 1;
  std::string run_id;
  std::string master_addr;
  std::uint16_t master_port = 0;
  UniqueFd listener;  // bound and listening, on the node that hosts the store
};

/// One node: no waiting. Binds the store's port and keeps it: the one asked for (0 = any), else
/// 29500 if it is free, else any. A loopback address binds loopback only.
/// Throws: ConnectionError when an explicit port is taken, naming address and port; UsageError when
///         the address is not one of this machine's.
Round join_single_node(const NodesConfig& nodes);

}  // namespace ddprun
