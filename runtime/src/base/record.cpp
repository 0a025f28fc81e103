// SPDX-License-Identifier: MIT
// Writes PyTorch's error.json; see record.h.
#include <ddprun/record.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <typeinfo>

#include <cxxabi.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/unique_fd.h"

namespace ddprun {
namespace {

constexpr std::size_t kMaxText = 64 * 1024;

/// The type of the exception that is being handled.
std::string current_exception_type() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  if (type == nullptr) return "unknown";
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(type->name(), nullptr, nullptr, nullptr), &std::free);
  return name ? name.get() : type->name();
}

std::string bounded(std::string_view text) {
  if (text.size() <= kMaxText) return std::string(text);
  return fmt::format("{} [cut: {} of {} bytes]", text.substr(0, kMaxText), kMaxText, text.size());
}

void write_error_file(const std::string& path, const std::string& message) {
  const nlohmann::json record = {
      {"message",
       {{"message", message},
        {"extraInfo",
         {{"py_callstack", message}, {"timestamp", std::to_string(std::time(nullptr))}}}}}};
  const std::string text = record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  for (std::size_t done = 0; file && done < text.size();) {
    const ssize_t n = ::write(file.get(), text.data() + done, text.size() - done);
    if (n < 0 && errno != EINTR) return;  // the line on stderr has it
    if (n > 0) done += static_cast<std::size_t>(n);
  }
}

int report(const WorkerEnv& env, const std::string& type, std::string_view what) {
  const std::string message = type + ": " + bounded(what);
  if (!env.error_file.empty()) write_error_file(env.error_file, message);
  const std::string line = fmt::format("rank {}: {}\n", env.rank, message);
  std::fputs(line.c_str(), stderr);
  return 1;
}

}  // namespace

int record(const TrainFn& fn, const WorkerEnv& env) {
  try {
    return fn(env);
  } catch (const abi::__forced_unwind&) {
    throw;  // the thread is being cancelled; this is not an exception
  } catch (const std::exception& error) {
    return report(env, current_exception_type(), error.what());
  } catch (...) {
    return report(env, current_exception_type(), "not a std::exception");
  }
}

}  // namespace ddprun
