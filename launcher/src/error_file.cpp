// SPDX-License-Identifier: MIT
// Reads error records; see error_file.h.
#include "error_file.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <limits>
#include <utility>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/env.h"
#include "base/log.h"
#include "spawn_child.h"

namespace ddprun {
namespace {

constexpr std::size_t kMaxRecord = 1024 * 1024;
constexpr int kMaxDepth = 64;  // writing a record out recurses

/// Discarded when it is not JSON, or nested deeper than any record is.
nlohmann::json parse(const std::string& text) {
  using json = nlohmann::json;
  bool too_deep = false;
  auto record = json::parse(
      text,
      [&](int depth, json::parse_event_t, json&) {
        too_deep |= depth > kMaxDepth;
        return !too_deep;
      },
      false);
  return too_deep ? json(json::value_t::discarded) : record;
}

std::optional<int> culprit_of(const nlohmann::json& message) {
  if (!message.is_object() || !message.contains("extraInfo")) return std::nullopt;
  const auto& extra = message["extraInfo"];
  if (!extra.is_object() || !extra.contains("remote_rank")) return std::nullopt;
  if (!extra["remote_rank"].is_string()) return std::nullopt;
  const auto rank = parse_int(extra["remote_rank"].get_ref<const std::string&>());
  if (!rank || *rank < 0 || *rank > std::numeric_limits<int>::max()) return std::nullopt;
  return static_cast<int>(*rank);
}

}  // namespace

ErrorRecord parse_error_record(const std::string& json) {
  const auto record = parse(json);
  if (!record.is_object() || !record.contains("message")) return {};
  const auto& outer = record["message"];
  const auto& message = outer.is_object() && outer.contains("message") ? outer["message"] : outer;
  if (!message.is_string()) return {};
  const auto line = message.get<std::string>();
  const auto culprit = culprit_of(outer);
  const std::size_t colon = line.find(": ");
  if (colon == std::string::npos) return {.type = line, .text = "", .culprit = culprit};
  return {.type = line.substr(0, colon), .text = line.substr(colon + 2), .culprit = culprit};
}

void forward_error_record(const std::string& json, int exit_code) {
  const auto path = get_env("TORCHELASTIC_ERROR_FILE");
  auto record = parse(json);
  if (!path || path->empty() || !record.is_object()) return;
  if (record["message"].is_object()) record["message"]["errorCode"] = exit_code;
  std::ofstream file(*path, std::ios::trunc);
  file << record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (!file.flush()) log(LogLevel::warning, "launch", "{}: the record could not be written", *path);
}

ErrorFile::ErrorFile(std::filesystem::path path) : path_(std::move(path)) {
  if (!path_.empty()) return;
  memory_ = UniqueFd(::memfd_create("ddprun-error", MFD_CLOEXEC));
  if (!memory_) throw StartError::from_errno("make an error file in memory", errno);
  path_ = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(memory_.get());
}

std::string ErrorFile::read() const {
  const UniqueFd file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status = {};
  if (!file || ::fstat(file.get(), &status) != 0) return "";
  std::string text(std::min(static_cast<std::size_t>(status.st_size), kMaxRecord), '\0');
  std::size_t filled = 0;
  while (filled < text.size()) {
    const ssize_t n = ::read(file.get(), text.data() + filled, text.size() - filled);
    if (n <= 0 && !(n < 0 && errno == EINTR)) break;
    if (n > 0) filled += static_cast<std::size_t>(n);
  }
  text.resize(filled);
  return text;
}

}  // namespace ddprun
