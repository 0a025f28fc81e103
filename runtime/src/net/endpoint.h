// SPDX-License-Identifier: MIT
// A socket address: from a host name and port, and as text in messages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sys/socket.h>

namespace ddprun {

struct Endpoint {
  sockaddr_storage address{};
  socklen_t length = sizeof(sockaddr_storage);

  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&address); }
  sockaddr* raw() { return reinterpret_cast<sockaddr*>(&address); }
  int family() const { return address.ss_family; }
  std::uint16_t port() const;
};

enum class EndpointUse { connect, listen };

/// Every address of a name, in the order the system prefers; a numeric address is taken as it is.
/// An empty host with `listen` is every interface, IPv6 (which takes IPv4 too) first.
/// Blocks: a name takes what the system's resolver takes; a numeric address does not block.
/// Throws: ConnectionError naming host and cause.
std::vector<Endpoint> resolve(const std::string& host, std::uint16_t port, EndpointUse use);

/// "10.0.0.7:29500", "[::1]:29500"; IPv4 inside IPv6 is shown as IPv4.
std::string to_string(const Endpoint& endpoint);

/// A host and port as one word: "node0:29500"; an IPv6 address gets its brackets.
std::string host_and_port(const std::string& host, std::uint16_t port);

/// The two ends of a socket, as text. "?" where the system does not say (the peer of a socket that
/// was reset).
std::string peer_text(int fd);
std::string local_text(int fd);

}  // namespace ddprun
