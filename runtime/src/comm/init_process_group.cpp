// SPDX-License-Identifier: MIT
// From what the launcher told us to a group: who hosts the store, and how long.
#include <ddprun/error.h>
#include <ddprun/prefix_store.h>
#include <ddprun/process_group.h>
#include <ddprun/tcp_store.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "base/log.h"
#include "net/socket.h"
#include "store/tcp_store_server.h"

namespace ddprun {
namespace {

constexpr std::chrono::seconds kGoodbyeLimit(10);
const std::string kLeftKey = "left";
const std::string kAllLeftKey = "all_left";

std::shared_ptr<Store> connect(const WorkerEnv& env, std::chrono::milliseconds timeout) {
  try {
    return connect_tcp_store({env.master_addr, env.master_port, timeout}, Deadline::after(timeout));
  } catch (const ConnectionError& error) {
    if (env.agent_store || env.rank == 0) throw;
    throw ConnectionError(
        fmt::format("{}; rank 0 hosts the store: see whether it has started, with the same "
                    "MASTER_ADDR and MASTER_PORT",
                    error.what()));
  }
}

UniqueFd listen_for_ranks(const WorkerEnv& env) {
  try {
    return listen_tcp(env.master_addr, env.master_port);
  } catch (const ConnectionError& error) {
    throw ConnectionError(fmt::format(
        "{}; rank 0 hosts the store on MASTER_ADDR:MASTER_PORT, which must be free", error.what()));
  }
}

// Tells the host that this rank needs its store no more.
void say_goodbye(Store& store, int world_size) {
  if (store.add(kLeftKey, 1) == world_size) store.set(kAllLeftKey, "");
}

// A store without an agent behind it: rank 0's process hosts it as long as its group lives, and
// then until the others have said that they are done too.
std::shared_ptr<Store> connect_peer_store(const WorkerEnv& env, std::chrono::milliseconds timeout) {
  std::shared_ptr<TcpStoreServer> server;
  if (env.rank == 0) server = std::make_shared<TcpStoreServer>(listen_for_ranks(env));
  auto client = connect(env, timeout);
  Store* const store = client.get();
  const auto release = [env, timeout, server, client = std::move(client)](Store*) mutable {
    try {
      say_goodbye(*client, env.world_size);
      const auto limit = std::min<std::chrono::milliseconds>(timeout, kGoodbyeLimit);
      if (server) client->wait(std::array{kAllLeftKey}, Deadline::after(limit));
    } catch (const Error& error) {
      log(LogLevel::info, "process_group", "leaving the store: {}", error.what());
    }
    client.reset();
    server.reset();
  };
  return {store, release};
}

}  // namespace

ProcessGroup init_process_group(const WorkerEnv& env, ProcessGroupOptions options) {
  if (!options.device) options.device = env.local_rank;
  if (env.world_size == 1) return ProcessGroup(nullptr, 0, 1, std::move(options));
  auto store =
      env.agent_store ? connect(env, options.timeout) : connect_peer_store(env, options.timeout);
  // A program may make a group, destroy it and make another; all its ranks do it equally often.
  const auto group = store->add(
      fmt::format("ddprun_worker/attempt_{}/groups_of_rank_{}", env.restart_count, env.rank), 1);
  auto prefix = fmt::format("ddprun_worker/attempt_{}/group_{}", env.restart_count, group);
  return ProcessGroup(with_prefix(std::move(store), std::move(prefix)), env.rank, env.world_size,
                      std::move(options));
}

}  // namespace ddprun
