// SPDX-License-Identifier: MIT
// The kinds of Store, for tests that must hold for all of them.
#pragma once

#include <ddprun/hash_store.h>
#include <ddprun/prefix_store.h>
#include <ddprun/tcp_store.h>

#include <functional>
#include <memory>
#include <string>

#include <doctest/doctest.h>

#include "net/socket.h"
#include "store/tcp_store_server.h"

namespace ddprun::test {

inline Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }

/// A server on a free port, and clients of it.
struct ServedStore {
  TcpStoreServer server{listen_tcp("127.0.0.1", 0)};

  std::shared_ptr<Store> open() {
    return connect_tcp_store({.port = server.port(), .request_timeout = std::chrono::seconds(20)},
                             soon());
  }
};

/// Opens one more view of the same data, as another rank would.
using OpenStore = std::function<std::shared_ptr<Store>()>;

/// Runs `check` with a fresh store of every kind.
inline void for_each_store(const std::function<void(const OpenStore&)>& check) {
  const auto with_name = [&](const char* kind, const OpenStore& open) {
    CAPTURE(kind);
    check(open);
  };
  const auto hash = make_hash_store();
  with_name("HashStore", [&] { return hash; });
  const auto below = make_hash_store();
  with_name("PrefixStore over HashStore", [&] { return with_prefix(below, "a/b"); });
  ServedStore tcp;
  with_name("TcpStore", [&] { return tcp.open(); });
  ServedStore prefixed;
  with_name("PrefixStore over TcpStore", [&] { return with_prefix(prefixed.open(), "a/b"); });
}

}  // namespace ddprun::test
