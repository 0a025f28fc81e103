// SPDX-License-Identifier: MIT
// Names and makes a run's log directory; see run_directory.h.
#include "run_directory.h"

#include <ddprun/error.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>

#include <fmt/core.h>
#include <stdlib.h>

#include "base/env.h"
#include "log_sink.h"

namespace ddprun {
namespace {

/// A run id as one component of a path: what could leave the directory or surprise a shell is
/// replaced; its length leaves room for the rest of the name.
std::string as_file_name(std::string_view run_id) {
  constexpr std::size_t kLongest = 128;
  std::string name(run_id.substr(0, kLongest));
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  std::replace_if(
      name.begin(), name.end(), [=](char c) { return kPlain.find(c) == kPlain.npos; }, '_');
  return name;
}

std::filesystem::path absolute(const std::filesystem::path& path, std::string_view origin) {
  std::error_code error;
  const auto result = std::filesystem::absolute(path, error);
  if (error)
    throw UsageError(fmt::format("[logs] {} {}: the current directory is not there any more ({})",
                                 origin, path.string(), error.message()));
  return result.lexically_normal();
}

}  // namespace

std::filesystem::path run_directory_pattern(const LaunchConfig& config, const std::string& run_id) {
  const std::string name = as_file_name(run_id) + "_XXXXXX";
  if (!config.logs.log_dir.empty()) return absolute(config.logs.log_dir, "--log_dir") / name;
  const auto& redirects = config.logs.redirects;
  const bool redirected = std::any_of(redirects.begin(), redirects.end(),
                                      [](Streams streams) { return streams != Streams::none; });
  if (!redirected) return {};
  const std::filesystem::path parent = get_env("TMPDIR").value_or("/tmp");
  return absolute(parent, "TMPDIR") / ("ddprun_" + name);
}

std::filesystem::path make_run_directory(const LaunchConfig& config, const std::string& run_id) {
  std::string path = run_directory_pattern(config, run_id).string();
  if (path.empty()) return {};
  const auto parent = std::filesystem::path(path).parent_path();
  std::error_code error;
  std::filesystem::create_directories(parent, error);
  if (error) throw_not_made(parent, error.value());
  if (::mkdtemp(path.data()) == nullptr) throw_not_made(path, errno);
  return path;
}

}  // namespace ddprun
