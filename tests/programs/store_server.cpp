// SPDX-License-Identifier: MIT
// Serves a store on 127.0.0.1 for the drivers of the tests: `store_server [PORT]`, 0 = any free one.
// Prints "SERVING host port" and ends when its standard input does.
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "net/socket.h"
#include "store/tcp_store_server.h"

int main(int argc, char** argv) {
  const auto port = static_cast<std::uint16_t>(argc > 1 ? std::atoi(argv[1]) : 0);
  const ddprun::TcpStoreServer server(ddprun::listen_tcp("127.0.0.1", port));
  std::printf("SERVING 127.0.0.1 %d\n", server.port());
  std::fflush(stdout);
  std::array<char, 256> ignored{};
  while (::read(STDIN_FILENO, ignored.data(), ignored.size()) > 0) {
  }
  return 0;
}
