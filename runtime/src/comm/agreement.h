// SPDX-License-Identifier: MIT
// Makes sure that all ranks were given the same things, before a difference can do harm.
#pragma once

#include <ddprun/export.h>
#include <ddprun/process_group.h>

#include <span>
#include <string>
#include <string_view>

namespace ddprun {

/// Compares `facts`, a list of texts that describe what this rank has, across ranks. One small
/// all_reduce when they are the same; the lists themselves are exchanged only when they are not.
/// `subject` begins and `advice` ends the error's text.
/// Blocks: until all ranks have called it.
/// Throws: UsageError with the same text on all ranks: which ranks differ, and the first fact in
///         which they do, as each side has it.
DDPRUN_API void require_same_on_all_ranks(ProcessGroup& group, std::string_view subject,
                                          std::span<const std::string> facts,
                                          std::string_view advice);

}  // namespace ddprun
