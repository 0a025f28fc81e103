// SPDX-License-Identifier: MIT
// The vocabulary of the launcher's system tests: ddprun with the worker program, marked processes,
// temporary directories.
#pragma once

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "process_table.h"
#include "support/program.h"
#include "support/scoped_env.h"
#include "support/temp_dir.h"

namespace ddprun::test {

inline bool long_tests() { return std::getenv("DDPRUN_TEST_LONG") != nullptr; }

/// {"ddprun", options..., worker, steps...}
inline std::vector<std::string> launch(std::vector<std::string> options,
                                       const std::vector<std::string>& steps) {
  options.insert(options.begin(), DDPRUN_PROGRAM);
  options.emplace_back(DDPRUN_WORKER);
  options.insert(options.end(), steps.begin(), steps.end());
  return options;
}

/// Marks every process started meanwhile, and all their descendants, so that survivors are found
/// whatever sessions they moved to.
class Marked {
 public:
  Marked() : scope_({{"DDPRUN_TEST_MARK", value_}}) {}

  /// Those that live, without zombies.
  std::set<int> processes() const {
    std::set<int> found;
    ProcessTable table;
    while (const pid_t pid = table.next())
      if (environment_lists(pid, "DDPRUN_TEST_MARK=", value_) && is_alive(pid)) found.insert(pid);
    return found;
  }

  /// Whether all are gone within the limit; waits for their ends, not for time to pass.
  bool gone_within(std::chrono::milliseconds limit) const {
    const auto deadline = Deadline::after(limit);
    for (;;) {
      const auto found = processes();
      if (found.empty()) return true;
      if (deadline.expired()) return false;
      const UniqueFd pidfd = open_pidfd(*found.begin());
      pollfd ended = {pidfd.get(), POLLIN, 0};
      ::poll(&ended, 1, static_cast<int>(deadline.remaining().count()));
    }
  }

 private:
  std::string value_ = std::to_string(::getpid()) + "." +
                       std::to_string(std::chrono::steady_clock::now().time_since_epoch().count());
  ScopedEnv scope_;
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The only entry of a directory.
inline std::filesystem::path only_entry(const std::filesystem::path& directory) {
  std::filesystem::path found;
  int n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    found = entry.path();
    ++n;
  }
  if (n != 1)
    throw std::runtime_error(directory.string() + " has " + std::to_string(n) + " entries");
  return found;
}

}  // namespace ddprun::test
