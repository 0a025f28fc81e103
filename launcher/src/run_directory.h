// SPDX-License-Identifier: MIT
// Where one run's log files are: a directory that no other run uses.
#pragma once

#include <ddprun/launch.h>

#include <filesystem>
#include <string>

namespace ddprun {

/// The pattern of the directory, absolute, its last six characters XXXXXX: under --log_dir, or
/// under $TMPDIR when streams are redirected without one. Empty: nothing is written.
/// Throws: UsageError for a relative path when the current directory was removed.
std::filesystem::path run_directory_pattern(const LaunchConfig& config, const std::string& run_id);

/// Makes it, mode 0700, and the directories above it; runs that start together get different ones.
/// Throws: as throw_not_made, naming the directory that cannot be made.
std::filesystem::path make_run_directory(const LaunchConfig& config, const std::string& run_id);

}  // namespace ddprun
