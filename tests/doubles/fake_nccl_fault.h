// SPDX-License-Identifier: MIT
// Fake NCCL: what goes wrong, on demand (FAKE_NCCL_FAULTS) or not, and what is said about it.
#pragma once

#include <string>

#include "doubles/fake_nccl.h"

namespace ddprun::doubles {

/// Keeps the text for ncclGetLastError, shows it when NCCL_DEBUG asks for warnings; the result.
NcclResult warn(NcclResult result, const std::string& text);
/// The same, shown always: what the real library would not notice.
NcclResult complain(NcclResult result, const std::string& text);

struct Fault {
  std::string action;  // empty: none
  int argument = 0;

  bool is(const char* name) const { return action == name; }
};

/// When a collective may go wrong: as it is called, or as it runs in its stream.
enum class When { kCalled, kRunning };

/// The fault that the plan has for this call of a rank.
Fault planned_fault(int rank, const std::string& call, When when);
/// Of a call that is not a collective: all its faults.
Fault planned_fault(int rank, const std::string& call);

/// Does what ends in itself: delay, exit, kill.
void act(const Fault& fault);

}  // namespace ddprun::doubles
