// SPDX-License-Identifier: MIT
// Log files and tails; see log_sink.h.
#include "log_sink.h"

#include <ddprun/error.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include "spawn_child.h"

namespace ddprun {

void throw_not_made(const std::filesystem::path& path, int error) {
  if (error == EMFILE || error == ENFILE || error == ENOSPC || error == EDQUOT)
    throw StartError::from_errno("create " + path.string(), error);
  throw UsageError(
      fmt::format("[logs] create {}: {}; see --log_dir", path.string(), std::strerror(error)));
}

LogFile::LogFile(std::filesystem::path path, Warn warn)
    : path_(std::move(path)),
      fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)),
      warn_(std::move(warn)) {
  if (!fd_) throw_not_made(path_, errno);
}

void LogFile::append(std::string_view bytes) {
  while (fd_ && !bytes.empty()) {
    const ssize_t n = ::write(fd_.get(), bytes.data(), bytes.size());
    if (n >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno != EINTR) {
      warn_(fmt::format("{}: {}; the file ends here, the rank goes on", path_.string(),
                        std::strerror(errno)));
      fd_.reset();
    }
  }
}

void LogTail::append(std::string_view bytes) {
  if (bytes.size() > kKept) bytes.remove_prefix(bytes.size() - kKept);
  if (bytes_.size() + bytes.size() > 2 * kKept) bytes_.erase(0, bytes_.size() - kKept);
  bytes_ += bytes;
}

std::string LogTail::last_lines(int lines, std::size_t bytes) const {
  std::string_view tail = bytes_;
  if (tail.ends_with('\n')) tail.remove_suffix(1);
  std::size_t from = tail.size();
  for (; lines > 0 && from != std::string_view::npos && from > 0; --lines)
    from = tail.rfind('\n', from - 1);
  if (from != std::string_view::npos && from > 0) tail.remove_prefix(from + 1);
  if (tail.size() > bytes) tail.remove_prefix(tail.size() - bytes);
  return std::string(tail);
}

}  // namespace ddprun
