// SPDX-License-Identifier: MIT
// A Store on a server that speaks PyTorch's TCPStore protocol: ddprun's own (see tcp_store_server)
// or one that Python hosts. The bytes are in runtime/src/store/PROTOCOL.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include <ddprun/store.h>

namespace ddprun {

struct TcpStoreOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 29500;
  /// Budget of one request that has no Deadline of its own (set, add, ...).
  std::chrono::milliseconds request_timeout = std::chrono::minutes(5);
};

/// Connects, tries again while the server is not up yet (back-off with jitter), and agrees on the
/// protocol.
/// Blocks:  until connected, at most until `deadline`.
/// Threads: one connection, used by one request at a time. A waiting get() blocks the others; give
///          a thread that waits long its own store.
/// Throws:  ConnectionError naming host, every address tried and the cause; TimeoutError when the
///          server accepts but does not answer ("... is not a store").
DDPRUN_API std::shared_ptr<Store> connect_tcp_store(const TcpStoreOptions& options,
                                                    Deadline deadline);

}  // namespace ddprun
