// SPDX-License-Identifier: MIT
// Every failure that ddprun throws. What is normal is a value (optional, ExitStatus, RunResult);
// what cannot be done throws one of these. Text: "[component] operation: what happened, with
// values; what to do". Every text names the rank, key, host or file it is about.
#pragma once

#include <stdexcept>
#include <string>

#include <ddprun/export.h>

namespace ddprun {

class DDPRUN_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The caller's mistake: an argument, a variable, a call out of order.
class DDPRUN_API UsageError : public Error {
 public:
  using Error::Error;
};

/// A Deadline passed while waiting for something that could still have come.
class DDPRUN_API TimeoutError : public Error {
 public:
  using Error::Error;
};

/// The store or a peer cannot be reached, or went away.
class DDPRUN_API ConnectionError : public Error {
 public:
  using Error::Error;
};

/// CUDA, NCCL or the operating system's memory said no.
class DDPRUN_API DeviceError : public Error {
 public:
  using Error::Error;
};

/// Another rank failed first, left, or called something else.
class DDPRUN_API RemoteError : public Error {
 public:
  RemoteError(int rank, const std::string& what) : Error(what), rank_(rank) {}
  /// The rank at fault, in the group whose operation failed.
  int rank() const { return rank_; }

 private:
  int rank_;
};

}  // namespace ddprun
