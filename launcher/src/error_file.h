// SPDX-License-Identifier: MIT
// The file in which a worker says what exception ended it: PyTorch's error.json.
// https://docs.pytorch.org/docs/stable/elastic/errors.html
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/unique_fd.h"

namespace ddprun {

struct ErrorRecord {
  std::string type;  // "std::runtime_error", "ValueError"; empty: no record
  std::string text;
  std::optional<int> culprit;  // the rank that it blames
};

/// Reads what a worker wrote: "<type>: <text>" in `message` or `message.message`, and, when another
/// rank ended it, that one's number in words in `message.extraInfo.remote_rank`. A record that is
/// missing, cut off, nested over 64 deep or something else gives an empty one: it may have died
/// while writing.
ErrorRecord parse_error_record(const std::string& json);

/// Writes the first failure's record, with the job's exit code, to the file that
/// TORCHELASTIC_ERROR_FILE of the launcher itself names, if any: a launcher above reads it as it
/// would its worker's.
void forward_error_record(const std::string& json, int exit_code);

/// Either a file of the log directory, or memory of the launcher that the worker opens through
/// /proc/<launcher>/fd.
class ErrorFile {
 public:
  /// `path`: as the worker will be told; empty: one in memory.
  explicit ErrorFile(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  /// What is in it; at most 1 MiB is read.
  std::string read() const;

 private:
  UniqueFd memory_;
  std::filesystem::path path_;
};

}  // namespace ddprun
