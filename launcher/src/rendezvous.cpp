// SPDX-License-Identifier: MIT
// The round of a job of one node; see rendezvous.h.
#include "rendezvous.h"

#include <ddprun/error.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <span>

#include <fmt/core.h>
#include <sys/random.h>

#include "net/socket.h"

namespace ddprun {
namespace {

constexpr std::uint16_t kUsualPort = 29500;

UniqueFd listen_for_store(const NodesConfig& nodes) {
  if (nodes.master_port) {
    try {
      return listen_tcp(nodes.master_addr, *nodes.master_port);
    } catch (const ConnectionError& e) {
      throw ConnectionError(fmt::format(
          "[rendezvous] {}:{} cannot be used (another job has it?); choose another with "
          "--master_port, or 0 for any: {}",
          nodes.master_addr, *nodes.master_port, e.what()));
    }
  }
  try {
    return listen_tcp(nodes.master_addr, kUsualPort);
  } catch (const ConnectionError&) {  // nobody asked for this one
    return listen_tcp(nodes.master_addr, 0);
  }
}

/// RFC 9562, version 4.
std::string random_uuid() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw Error(fmt::format("[rendezvous] getrandom: errno {}", errno));
  bytes[6] = static_cast<unsigned char>((bytes[6] & 0x0fU) | 0x40U);
  bytes[8] = static_cast<unsigned char>((bytes[8] & 0x3fU) | 0x80U);
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    text += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", bytes[i]);
  return text;
}

}  // namespace

Round join_single_node(const NodesConfig& nodes) {
  Round round;
  round.node_rank = nodes.node_rank;
  round.node_count = nodes.nnodes;
  round.world_size = nodes.nproc_per_node;
  round.run_id = nodes.run_id.empty() ? random_uuid() : nodes.run_id;
  round.master_addr = nodes.master_addr;
  round.listener = listen_for_store(nodes);
  round.master_port = local_port(round.listener.get());
  return round;
}

}  // namespace ddprun
