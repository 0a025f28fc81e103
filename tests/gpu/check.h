// SPDX-License-Identifier: MIT
// What the check programs share: lines that say what was seen, and calls of CUDA and NCCL that the
// product does not use. A line that begins with "figure" is what run.sh shows in its table.
#pragma once

#include <ddprun/deadline.h>
#include <ddprun/error.h>

#include <chrono>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include <dlfcn.h>
#include <fmt/core.h>

#include "cuda/cuda_api.h"

namespace ddprun::gpu_check {

/// Exit statuses that run.sh knows.
inline constexpr int kFailed = 1, kUsage = 2, kNeedsGpu = 77;

/// What is checked and what is only worth knowing.
class Report {
 public:
  void check(bool holds, const std::string& what) {
    fmt::print("{}  {}\n", holds ? "ok    " : "FAILED", what);
    failed_ += holds ? 0 : 1;
  }
  void note(const std::string& what) { fmt::print("info    {}\n", what); }
  void figure(const std::string& what) { fmt::print("figure {}\n", what); }
  int status() const { return failed_ == 0 ? 0 : kFailed; }

 private:
  int failed_ = 0;
};

/// A function of a library that is loaded; null if it has none of that name.
template <class Function>
Function find(const std::string& path, const char* name) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  return library == nullptr ? nullptr : reinterpret_cast<Function>(::dlsym(library, name));
}

template <class Function>
Function cuda_function(const char* name) {
  const auto function = find<Function>(cuda_api().path, name);
  if (function == nullptr) throw DeviceError(fmt::format("[check] {} is missing", name));
  return function;
}

/// Polls until `done` says so. Throws: TimeoutError.
inline void wait_until(const std::function<bool()>& done, std::chrono::seconds limit,
                       const char* what) {
  const auto deadline = Deadline::after(limit);
  while (!done()) {
    if (deadline.expired()) throw TimeoutError(fmt::format("[check] {}: not done", what));
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

/// Runs the mode that the first argument names.
inline int run_mode(int argc, char** argv,
                    const std::map<std::string, std::function<void(Report&)>>& modes) {
  const auto mode = argc < 2 ? modes.end() : modes.find(argv[1]);
  if (mode == modes.end()) {
    fmt::print(stderr, "usage: {} MODE\n", argv[0]);
    for (const auto& [name, ignored] : modes) fmt::print(stderr, "  {}\n", name);
    return kUsage;
  }
  Report report;
  try {
    mode->second(report);
  } catch (const std::exception& error) {
    report.check(false, error.what());
  }
  return report.status();
}

}  // namespace ddprun::gpu_check
