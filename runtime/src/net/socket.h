// SPDX-License-Identifier: MIT
// TCP sockets with deadlines: every call that can wait takes a Deadline.
#pragma once

#include <ddprun/deadline.h>
#include <ddprun/export.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/unique_fd.h"

namespace ddprun {

/// Binds and listens. A name or address of this machine; a loopback one binds loopback only;
/// port 0 picks a free one. SO_REUSEADDR, close-on-exec, backlog the system's maximum.
/// Throws: ConnectionError naming address, port and cause ("Address already in use").
DDPRUN_API UniqueFd listen_tcp(const std::string& host, std::uint16_t port);

/// The port a socket is bound to.
DDPRUN_API std::uint16_t local_port(int fd);

/// Tries every address the name has, each with a part of the time; TCP_NODELAY, close-on-exec.
/// Throws: ConnectionError naming every address tried and why it failed.
DDPRUN_API UniqueFd connect_tcp(const std::string& host, std::uint16_t port, Deadline deadline);

/// Throws: TimeoutError, ConnectionError (also at end of file in the middle of `into`).
DDPRUN_API void send_all(int fd, std::span<const std::byte> bytes, Deadline deadline);
DDPRUN_API void receive_all(int fd, std::span<std::byte> into, Deadline deadline);

}  // namespace ddprun
