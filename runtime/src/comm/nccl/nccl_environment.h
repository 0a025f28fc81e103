// SPDX-License-Identifier: MIT
// Looks at the variables that steer NCCL before NCCL does: it takes what it cannot read for 0 or
// for nothing, and goes on.
// https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ddprun {

using Variable = std::pair<std::string, std::string>;  // name and value

/// One address of a network interface that is running.
struct InterfaceAddress {
  std::string interface;
  bool ipv6 = false;
};

/// Whole lines for people.
struct EnvironmentFindings {
  std::string fault;                  // a value that NCCL would misread; empty: there is none
  std::vector<std::string> warnings;  // what is probably not meant, or changes what ddprun assumes
};

EnvironmentFindings check_nccl_environment(std::span<const Variable> variables,
                                           std::span<const InterfaceAddress> addresses);

/// Of this process: the variables that the check is about.
std::vector<Variable> nccl_environment();
/// Of this machine: the addresses among which NCCL would choose.
std::vector<InterfaceAddress> interface_addresses();

}  // namespace ddprun
