// SPDX-License-Identifier: MIT
// The checks of nccl_environment.h.
#include "comm/nccl/nccl_environment.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>

#include <fmt/core.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include "comm/nccl/nccl_variables.h"

namespace ddprun {
namespace {

using Addresses = std::span<const InterfaceAddress>;

std::string upper(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return result;
}

template <std::size_t N>
bool is_one_of(std::string_view text, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

/// What to write for a word that NCCL does not know, or for a number with a unit.
std::string advice_for(const std::string& value, long long read, std::string_view rest) {
  constexpr auto kYes = std::to_array<std::string_view>({"TRUE", "YES", "ON", "Y", "ENABLE"});
  constexpr auto kNo = std::to_array<std::string_view>({"FALSE", "NO", "OFF", "N", "DISABLE"});
  const std::string word = upper(value);
  if (is_one_of(word, kYes)) return "write 1";
  if (is_one_of(word, kNo)) return "write 0";
  constexpr std::string_view kUnits = "KMG";
  const std::string unit = upper(rest.substr(0, 1));
  const auto power = unit.empty() ? kUnits.npos : kUnits.find(unit[0]);
  if (read > 0 && read < (1LL << 30) && power != kUnits.npos)
    return fmt::format("write {}", read << (10 * (power + 1)));
  return "write a whole number";
}

/// NCCL reads with strtoll, base 0, and looks at neither the rest nor the beginning.
std::string check_integer(const Variable& variable) {
  const auto& [name, value] = variable;
  if (value.empty()) return {};  // as if it were not set
  char* end = nullptr;
  errno = 0;
  const long long read = std::strtoll(value.c_str(), &end, 0);
  if (errno == ERANGE)
    return fmt::format(
        "{}={} is too large for NCCL, which would use its default; write a smaller "
        "number",
        name, value);
  if (end != value.c_str() && *end == '\0') return {};
  return fmt::format("{}={} is not a number: NCCL would take it for {}; {}", name, value, read,
                     advice_for(value, read, end));
}

/// A value of NCCL_SOCKET_IFNAME: [^][=]name[:port],... - all but those, exactly those.
struct InterfaceChoice {
  bool excluded = false;
  bool exact = false;
  std::vector<std::string> names;

  bool takes(const std::string& interface) const {
    const auto fits = [&](const std::string& name) {
      return exact ? interface == name : interface.starts_with(name);
    };
    return (names.empty() || std::any_of(names.begin(), names.end(), fits)) != excluded;
  }
};

InterfaceChoice parse_choice(std::string_view text) {
  InterfaceChoice choice;
  choice.excluded = text.starts_with('^');
  if (choice.excluded) text.remove_prefix(1);
  choice.exact = text.starts_with('=');
  if (choice.exact) text.remove_prefix(1);
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), entry.size() + 1));
    if (const auto name = entry.substr(0, entry.find(':')); !name.empty())
      choice.names.emplace_back(name);
  }
  return choice;
}

std::string value_of(std::span<const Variable> variables, std::string_view name) {
  for (const auto& [n, value] : variables)
    if (n == name) return value;
  return {};
}

std::string check_interfaces(std::span<const Variable> variables, Addresses addresses) {
  constexpr const char* kName = "NCCL_SOCKET_IFNAME";
  const std::string value = value_of(variables, kName);
  if (value.size() < 2) return {};  // NCCL then chooses itself
  const std::string family = value_of(variables, "NCCL_SOCKET_FAMILY");
  const InterfaceChoice choice = parse_choice(value);
  std::vector<std::string> there;
  for (const InterfaceAddress& address : addresses) {
    if (family == (address.ipv6 ? "AF_INET" : "AF_INET6")) continue;
    if (choice.takes(address.interface)) return {};
    if (std::find(there.begin(), there.end(), address.interface) == there.end())
      there.push_back(address.interface);
  }
  return fmt::format(
      "{}={} matches no running network interface{}; there {}; correct it or unset "
      "it",
      kName, value, family.empty() ? "" : " of NCCL_SOCKET_FAMILY=" + family,
      there.empty() ? "is none" : fmt::format("are {}", fmt::join(there, ", ")));
}

std::optional<std::string> check_debug_level(const std::string& value) {
  constexpr auto kLevels =
      std::to_array<std::string_view>({"VERSION", "WARN", "INFO", "ABORT", "TRACE", "NONE"});
  if (value.empty() || is_one_of(upper(value), kLevels)) return std::nullopt;
  return fmt::format(
      "NCCL_DEBUG={} is not a level, so NCCL prints nothing; write VERSION, WARN, "
      "INFO or TRACE",
      value);
}

/// What a variable that is well-formed makes different; empty: nothing that ddprun relies on.
std::string consequence_of(const std::string& name, const std::string& value) {
  if (name == "NCCL_COMM_BLOCKING" && !value.empty())
    return "overrides how ddprun makes communicators; without it a missing rank is found by the "
           "deadline";
  if (name == "NCCL_COMM_ID")
    return "replaces the meeting point that ddprun gives NCCL; two groups of one job would collide";
  if (name == "NCCL_HOSTID")
    return "decides which ranks NCCL takes to be on one host, and with that which GPUs are the "
           "same";
  if (name == "CUDA_LAUNCH_BLOCKING" && value == "1")
    return "makes every kernel launch wait: nothing overlaps, and some versions of NCCL hang";
  if (name == "NCCL_DEBUG_FILE" && value.find('%') == std::string::npos)
    return "is one file for all ranks; put %h (host) and %p (process) into its name";
  return {};
}

}  // namespace

EnvironmentFindings check_nccl_environment(std::span<const Variable> variables,
                                           Addresses addresses) {
  EnvironmentFindings findings;
  for (const Variable& variable : variables) {
    const auto& [name, value] = variable;
    if (is_nccl_integer(name)) {
      if (findings.fault.empty()) findings.fault = check_integer(variable);
    } else if (name.starts_with("NCCL_") && !is_nccl_variable(name)) {
      const std::string nearest = nearest_nccl_variable(name);
      findings.warnings.push_back(
          nearest.empty() ? fmt::format("NCCL knows no variable {}", name)
                          : fmt::format("NCCL knows no variable {}; is it {}?", name, nearest));
    }
    if (name == "NCCL_DEBUG")
      if (auto warning = check_debug_level(value)) findings.warnings.push_back(std::move(*warning));
    if (const auto consequence = consequence_of(name, value); !consequence.empty())
      findings.warnings.push_back(fmt::format("{}={} {}", name, value, consequence));
  }
  if (findings.fault.empty()) findings.fault = check_interfaces(variables, addresses);
  return findings;
}

std::vector<Variable> nccl_environment() {
  std::vector<Variable> variables;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals == text.npos) continue;
    const auto name = text.substr(0, equals);
    if (name.starts_with("NCCL_") || name == "CUDA_LAUNCH_BLOCKING")
      variables.emplace_back(name, text.substr(equals + 1));
  }
  std::sort(variables.begin(), variables.end());
  return variables;
}

std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, &::freeifaddrs);
  std::vector<InterfaceAddress> addresses;
  for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_RUNNING) == 0) continue;
    const auto family = at->ifa_addr->sa_family;
    const bool ipv6 = family == AF_INET6;
    if (family != AF_INET && !ipv6) continue;
    if (ipv6 && (at->ifa_flags & IFF_LOOPBACK) != 0) continue;  // NCCL does not use ::1
    addresses.push_back({at->ifa_name, ipv6});
  }
  return addresses;
}

}  // namespace ddprun
