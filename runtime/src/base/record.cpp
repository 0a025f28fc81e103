// SPDX-License-Identifier: MIT
// Writes PyTorch's error.json; see record.h.
#include <ddprun/error.h>
#include <ddprun/record.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <memory>
#include <optional>
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

/// The rank that the exception being handled says is at fault.
std::optional<int> blamed_rank() {
  try {
    throw;
  } catch (const RemoteError& error) {
    return error.rank();
  } catch (...) {
    return std::nullopt;
  }
}

void write_error_file(const std::string& path, const std::string& message) {
  nlohmann::json extra = {{"py_callstack", message},
                          {"timestamp", std::to_string(std::time(nullptr))}};
  // Ours: by it the launcher tells a victim from the rank that failed.
  if (const auto rank = blamed_rank()) extra["remote_rank"] = std::to_string(*rank);
  const nlohmann::json record = {{"message", {{"message", message}, {"extraInfo", extra}}}};
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

/// The launcher's pipe is no terminal: without this, lines would show when the buffer is full, and
/// be lost when the rank is stopped. As python3 -u.
void show_lines_at_once() {
  // stdout's own from here to the end of the process. Without a new buffer, a stream that was
  // written to before would go on as it was.
  static std::array<char, BUFSIZ> buffer;
  std::setvbuf(stdout, buffer.data(), _IOLBF, buffer.size());
}

}  // namespace

int record(const TrainFn& fn, const WorkerEnv& env) {
  show_lines_at_once();
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
