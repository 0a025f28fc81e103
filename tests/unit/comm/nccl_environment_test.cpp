// SPDX-License-Identifier: MIT
// What is said about the variables that steer NCCL.
#include "comm/nccl/nccl_environment.h"

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "comm/nccl/nccl_variables.h"
#include "support/scoped_env.h"

using namespace ddprun;

namespace {

const std::vector<InterfaceAddress> kAddresses = {
    {"lo"}, {"eth0"}, {"eth10"}, {"eth10", true}, {"wlan0", true}};

EnvironmentFindings check(const std::vector<Variable>& variables) {
  return check_nccl_environment(variables, kAddresses);
}
std::string fault(const std::string& name, const std::string& value) {
  return check({{name, value}}).fault;
}
std::vector<std::string> warnings(const std::string& name, const std::string& value) {
  return check({{name, value}}).warnings;
}
std::string interface_fault(const std::string& value, const std::string& family = "") {
  return check({{"NCCL_SOCKET_FAMILY", family}, {"NCCL_SOCKET_IFNAME", value}}).fault;
}
std::string takes(const std::string& read, const std::string& advice) {
  return " is not a number: NCCL would take it for " + read + "; write " + advice;
}

}  // namespace

TEST_SUITE("collectives") {
  TEST_CASE(
      "NCCL's variables: a number that NCCL would misread is a fault that says what to write") {
    const std::string name = "NCCL_IB_DISABLE";
    for (const char* yes : {"true", "True", "yes", "on", "y"})
      CHECK(fault(name, yes) == name + "=" + yes + takes("0", "1"));
    for (const char* no : {"false", "no", "OFF"})
      CHECK(fault(name, no) == name + "=" + no + takes("0", "0"));
    CHECK(fault("NCCL_BUFFSIZE", "8M") == "NCCL_BUFFSIZE=8M" + takes("8", "8388608"));
    CHECK(fault("NCCL_BUFFSIZE", "4KiB") == "NCCL_BUFFSIZE=4KiB" + takes("4", "4096"));
    CHECK(fault("NCCL_BUFFSIZE", "1g") == "NCCL_BUFFSIZE=1g" + takes("1", "1073741824"));
    CHECK(fault("NCCL_NTHREADS", "2.5") == "NCCL_NTHREADS=2.5" + takes("2", "a whole number"));
    CHECK(fault("NCCL_NTHREADS", "1 ") == "NCCL_NTHREADS=1 " + takes("1", "a whole number"));
    CHECK(fault("NCCL_P2P_DISABLE", "true") == "NCCL_P2P_DISABLE=true" + takes("0", "1"));
    CHECK(fault("NCCL_NTHREADS", "99999999999999999999") ==
          "NCCL_NTHREADS=99999999999999999999 is too large for NCCL, which would use its default; "
          "write a smaller number");
  }

  TEST_CASE("NCCL's variables: what NCCL reads as it is written is no fault") {
    for (const char* value : {"", "0", "1", "-1", "+4", "0x10", "010", " 7"}) {
      CAPTURE(value);
      CHECK(fault("NCCL_NTHREADS", value).empty());
    }
    CHECK(fault("NCCL_ALGO", "true").empty());  // a word
    CHECK(fault("NCCL_P2P_LEVEL", "SYS").empty());
    CHECK(fault("OTHER_DISABLE", "true").empty());
    CHECK(check({}).fault.empty());
  }

  TEST_CASE("NCCL's variables: the first fault is told") {
    CHECK(check({{"NCCL_IB_DISABLE", "1"}, {"NCCL_SHM_DISABLE", "on"}, {"NCCL_NTHREADS", "x"}})
              .fault.starts_with("NCCL_SHM_DISABLE=on "));
  }

  TEST_CASE("NCCL's variables: an unknown name is warned of, with the one that it may mean") {
    using Lines = std::vector<std::string>;
    CHECK(warnings("NCCL_IB_DISBALE", "1") ==
          Lines{"NCCL knows no variable NCCL_IB_DISBALE; is it NCCL_IB_DISABLE?"});
    CHECK(warnings("NCCL_SOCKET_IF_NAME", "eth0") ==
          Lines{"NCCL knows no variable NCCL_SOCKET_IF_NAME; is it NCCL_SOCKET_IFNAME?"});
    CHECK(warnings("NCCL_QUITE_ANOTHER_THING_ALTOGETHER", "1") ==
          Lines{"NCCL knows no variable NCCL_QUITE_ANOTHER_THING_ALTOGETHER"});
    CHECK(warnings("NCCL_", "1") == Lines{"NCCL knows no variable NCCL_"});
    for (const char* known : {"NCCL_IB_DISABLE", "NCCL_SOCKET_IFNAME", "NCCL_ALGO",
                              "NCCL_MULTI_RANK_GPU_ENABLE", "NCCL_DEBUG_SUBSYS", "NCCL_CONF_FILE"})
      CHECK(warnings(known, "1").empty());
  }

  TEST_CASE("NCCL's variables: a level of NCCL_DEBUG that prints nothing is warned of") {
    for (const char* level : {"", "WARN", "info", "Version", "TRACE", "ABORT"})
      CHECK(warnings("NCCL_DEBUG", level).empty());
    for (const char* level : {"Warning", "1", "DEBUG", "INFO "}) {
      CAPTURE(level);
      CHECK(warnings("NCCL_DEBUG", level) ==
            std::vector<std::string>{"NCCL_DEBUG=" + std::string(level) +
                                     " is not a level, so NCCL prints nothing; write VERSION, "
                                     "WARN, INFO or TRACE"});
    }
  }

  TEST_CASE("NCCL's variables: what changes the ground under a group is warned of") {
    for (const Variable& variable :
         {Variable("NCCL_COMM_BLOCKING", "1"), Variable("NCCL_COMM_ID", "10.0.0.1:5000"),
          Variable("NCCL_HOSTID", "a"), Variable("CUDA_LAUNCH_BLOCKING", "1"),
          Variable("NCCL_DEBUG_FILE", "/tmp/nccl.log")}) {
      const auto said = warnings(variable.first, variable.second);
      CAPTURE(variable.first);
      CHECK(said.size() == 1);
      CHECK(said.front().starts_with(variable.first + "=" + variable.second + " "));
    }
    CHECK(warnings("CUDA_LAUNCH_BLOCKING", "0").empty());
    CHECK(warnings("NCCL_COMM_BLOCKING", "").empty());
    CHECK(warnings("NCCL_DEBUG_FILE", "/tmp/nccl.%h.%p").empty());
  }

  TEST_CASE("NCCL's variables: NCCL_SOCKET_IFNAME must match an interface") {
    CHECK(interface_fault("nosuch") ==
          "NCCL_SOCKET_IFNAME=nosuch matches no running network interface; there are lo, eth0, "
          "eth10, wlan0; correct it or unset it");
    for (const char* good : {"lo", "eth", "eth1", "=eth10", "nosuch,eth0", "eth0:1", "^lo",
                             "^=eth0", "^nosuch", "x", ""}) {
      CAPTURE(good);
      CHECK(interface_fault(good).empty());
    }
    for (const char* bad : {"=eth", "=eth1", "^lo,eth,wlan", "th0", "ETH0", "=lo1"}) {
      CAPTURE(bad);
      CHECK(interface_fault(bad).starts_with("NCCL_SOCKET_IFNAME=" + std::string(bad) + " "));
    }
  }

  TEST_CASE("NCCL's variables: an interface counts with an address of the family asked for") {
    CHECK(interface_fault("eth0", "AF_INET").empty());
    CHECK(interface_fault("eth0", "AF_INET6") ==
          "NCCL_SOCKET_IFNAME=eth0 matches no running network interface of "
          "NCCL_SOCKET_FAMILY=AF_INET6; there are eth10, wlan0; correct it or unset it");
    CHECK(interface_fault("wlan0", "AF_INET6").empty());
    CHECK(interface_fault("wlan0", "AF_INET").find("there are lo, eth0, eth10;") !=
          std::string::npos);
    CHECK(check_nccl_environment(std::vector<Variable>{{"NCCL_SOCKET_IFNAME", "eth0"}}, {})
              .fault.find("; there is none; ") != std::string::npos);
  }

  TEST_CASE(
      "NCCL's variables: of the environment those of NCCL and CUDA's blocking are looked at") {
    const test::ScopedEnv env(
        {{"NCCL_TEST_OF_DDPRUN", "a=b"}, {"CUDA_LAUNCH_BLOCKING", "0"}, {"MY_NCCL_ALGO", "x"}});
    const auto variables = nccl_environment();
    const auto has = [&](const char* name, const char* value) {
      return std::count(variables.begin(), variables.end(), Variable(name, value));
    };
    CHECK(has("NCCL_TEST_OF_DDPRUN", "a=b") == 1);
    CHECK(has("CUDA_LAUNCH_BLOCKING", "0") == 1);
    CHECK(has("MY_NCCL_ALGO", "x") == 0);
  }

  TEST_CASE("NCCL's variables: the loopback interface of this machine is seen") {
    const auto addresses = interface_addresses();
    CHECK(std::any_of(addresses.begin(), addresses.end(), [](const InterfaceAddress& address) {
      return address.interface == "lo" && !address.ipv6;
    }));
  }
}
