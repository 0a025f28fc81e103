// SPDX-License-Identifier: MIT
// Sets or removes environment variables for the length of a test.
#pragma once

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

namespace ddprun::test {

class ScopedEnv {
 public:
  explicit ScopedEnv(const std::map<std::string, std::optional<std::string>>& variables) {
    for (const auto& [name, value] : variables) {
      const char* old = std::getenv(name.c_str());
      old_[name] = old ? std::optional<std::string>(old) : std::nullopt;
      apply(name, value);
    }
  }
  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;
  ~ScopedEnv() {
    for (const auto& [name, value] : old_) apply(name, value);
  }

 private:
  static void apply(const std::string& name, const std::optional<std::string>& value) {
    if (value)
      ::setenv(name.c_str(), value->c_str(), 1);
    else
      ::unsetenv(name.c_str());
  }
  std::map<std::string, std::optional<std::string>> old_;
};

}  // namespace ddprun::test
