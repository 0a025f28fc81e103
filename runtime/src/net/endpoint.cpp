// SPDX-License-Identifier: MIT
// A socket address: from a host name and port, and as text in messages; see endpoint.h.
#include "net/endpoint.h"

#include <ddprun/error.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>

namespace ddprun {
namespace {

std::string address_text(const Endpoint& endpoint) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (endpoint.family() == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&endpoint.address);
    return ::inet_ntop(AF_INET, &v4->sin_addr, text.data(), text.size());
  }
  if (endpoint.family() != AF_INET6) return "?";
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&endpoint.address);
  if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
    return ::inet_ntop(AF_INET, &v6->sin6_addr.s6_addr[12], text.data(), text.size());
  return ::inet_ntop(AF_INET6, &v6->sin6_addr, text.data(), text.size());
}

}  // namespace

std::uint16_t Endpoint::port() const {
  if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
  if (family() == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port);
  return 0;
}

std::vector<Endpoint> resolve(const std::string& host, std::uint16_t port, EndpointUse use) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (use == EndpointUse::listen ? AI_PASSIVE : 0);
  addrinfo* raw = nullptr;
  const std::string service = std::to_string(port);
  const int error =
      ::getaddrinfo(host.empty() ? nullptr : host.c_str(), service.c_str(), &hints, &raw);
  if (error != 0)
    throw ConnectionError(
        fmt::format("[net] resolve: host '{}' has no address: {}; check the name", host,
                    error == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(error)));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(raw, &::freeaddrinfo);
  std::vector<Endpoint> found;
  for (const addrinfo* a = raw; a != nullptr; a = a->ai_next) {
    Endpoint endpoint;
    std::memcpy(&endpoint.address, a->ai_addr, a->ai_addrlen);
    endpoint.length = a->ai_addrlen;
    // The wildcards come IPv4 first, but only the IPv6 one serves both families.
    const bool first = host.empty() && a->ai_family == AF_INET6;
    found.insert(first ? found.begin() : found.end(), endpoint);
  }
  return found;
}

std::string to_string(const Endpoint& endpoint) {
  return host_and_port(address_text(endpoint), endpoint.port());
}

std::string host_and_port(const std::string& host, std::uint16_t port) {
  const bool brackets = host.find(':') != std::string::npos;
  return brackets ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

std::string peer_text(int fd) {
  Endpoint end;
  return ::getpeername(fd, end.raw(), &end.length) == 0 ? to_string(end) : "?";
}

std::string local_text(int fd) {
  Endpoint end;
  return ::getsockname(fd, end.raw(), &end.length) == 0 ? to_string(end) : "?";
}

}  // namespace ddprun
