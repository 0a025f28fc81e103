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

/// Binds and listens. A name or address of this machine; a loopback one binds loopback only, an
/// empty one every interface; port 0 picks a free one. SO_REUSEADDR, close-on-exec, non-blocking,
/// backlog the system's maximum.
/// Throws: ConnectionError naming address, port and cause ("Address already in use"); UsageError
///         when the host is not this machine's.
DDPRUN_API UniqueFd listen_tcp(const std::string& host, std::uint16_t port);

/// The port a socket is bound to.
DDPRUN_API std::uint16_t local_port(int fd);

/// Tries every address the name has, each with a part of the time, and does not try again: a
/// refusal is an answer. The socket has TCP_NODELAY, close-on-exec and is non-blocking.
/// Blocks: until connected or refused, at most until `deadline`, plus the system's look-up of a
/// name. Throws: ConnectionError naming every address tried and why it failed.
DDPRUN_API UniqueFd connect_tcp(const std::string& host, std::uint16_t port, Deadline deadline);

/// These work on blocking and non-blocking sockets alike, and try once when `deadline` has passed.
/// Throws: TimeoutError; ConnectionError naming the peer when it closed (also at end of file in the
///         middle of `into`).
DDPRUN_API void send_all(int fd, std::span<const std::byte> bytes, Deadline deadline);
DDPRUN_API void receive_all(int fd, std::span<std::byte> into, Deadline deadline);
/// Receives what is there, at least one byte; returns how many.
DDPRUN_API std::size_t receive_some(int fd, std::span<std::byte> into, Deadline deadline);

}  // namespace ddprun
