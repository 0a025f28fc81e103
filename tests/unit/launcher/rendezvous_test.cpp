// SPDX-License-Identifier: MIT
// join_single_node: which port, which address, which run id.
#include "rendezvous.h"

#include <ddprun/error.h>

#include <algorithm>
#include <cctype>
#include <string>

#include <doctest/doctest.h>

#include "net/socket.h"

using namespace ddprun;

TEST_SUITE("launcher") {
  TEST_CASE("rendezvous: port 0 becomes a real port that is kept") {
    NodesConfig nodes;
    nodes.nproc_per_node = 4;
    nodes.run_id = "job-7";
    nodes.master_port = 0;
    const Round round = join_single_node(nodes);
    CHECK(round.node_rank == 0);
    CHECK(round.node_count == 1);
    CHECK(round.first_rank == 0);
    CHECK(round.world_size == 4);
    CHECK(round.run_id == "job-7");
    CHECK(round.master_addr == "127.0.0.1");
    CHECK(round.master_port != 0);
    CHECK(round.master_port == local_port(round.listener.get()));
    CHECK_THROWS_AS(listen_tcp("127.0.0.1", round.master_port), ConnectionError);
  }

  TEST_CASE("rendezvous: an explicit port that is taken is named with its address and a way out") {
    const UniqueFd taken = listen_tcp("127.0.0.1", 0);
    NodesConfig nodes;
    nodes.master_port = local_port(taken.get());
    const std::string where = "127.0.0.1:" + std::to_string(*nodes.master_port);
    CHECK_THROWS_WITH_AS(join_single_node(nodes),
                         doctest::Contains(("[rendezvous] " + where).c_str()), ConnectionError);
    CHECK_THROWS_WITH_AS(join_single_node(nodes), doctest::Contains("Address already in use"),
                         ConnectionError);
    CHECK_THROWS_WITH_AS(join_single_node(nodes),
                         doctest::Contains("choose another with --master_port, or 0 for any"),
                         ConnectionError);
  }

  TEST_CASE("rendezvous: without a port 29500 is taken when it is free, else any other") {
    NodesConfig nodes;
    nodes.master_addr = "127.0.0.77";  // an address of loopback that no other test uses
    const Round first = join_single_node(nodes);
    const Round second = join_single_node(nodes);
    CHECK(first.master_port == 29500);
    CHECK(second.master_port != 29500);
    CHECK(second.master_port == local_port(second.listener.get()));
  }

  TEST_CASE("rendezvous: an address that is not this machine's is the caller's mistake") {
    NodesConfig nodes;
    nodes.master_addr = "203.0.113.7";
    CHECK_THROWS_WITH_AS(join_single_node(nodes), doctest::Contains("203.0.113.7"), UsageError);
    nodes.master_port = 0;
    CHECK_THROWS_WITH_AS(join_single_node(nodes), doctest::Contains("203.0.113.7"), UsageError);
    nodes.master_addr = "no.such.host.invalid";
    CHECK_THROWS_WITH_AS(join_single_node(nodes), doctest::Contains("no.such.host.invalid"),
                         UsageError);
  }

  TEST_CASE("rendezvous: a run without an id gets a random UUID") {
    NodesConfig nodes;
    nodes.master_port = 0;
    const std::string id = join_single_node(nodes).run_id;
    CHECK(id != join_single_node(nodes).run_id);
    REQUIRE(id.size() == 36);
    std::string form = id;
    for (char& c : form)
      if (std::isxdigit(static_cast<unsigned char>(c))) c = 'x';
    CHECK(form == "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx");
    CHECK(id[14] == '4');
    CHECK(std::string("89ab").find(id[19]) != std::string::npos);
  }
}
