// SPDX-License-Identifier: MIT
// Serves PyTorch's TCPStore protocol (PROTOCOL.md) to workers in C++ and Python on one port.
#pragma once

#include <ddprun/export.h>

#include <cstdint>
#include <memory>

#include "base/unique_fd.h"

namespace ddprun {

/// Threads: one of its own, from construction to destruction, with all signals blocked; it sleeps
///          while nobody asks. Every member from any thread.
class DDPRUN_API TcpStoreServer {
 public:
  /// Takes over a socket that is bound and listening.
  explicit TcpStoreServer(UniqueFd listener);
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;
  /// Closes every connection and joins the thread.
  ~TcpStoreServer();

  std::uint16_t port() const;
  /// Drops every key that does not begin with /ddprun/, and closes the connections that exist now,
  /// except those that have named such keys only: they are the launchers'.
  /// Blocks: until done.
  void start_attempt();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
