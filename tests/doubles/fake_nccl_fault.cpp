// SPDX-License-Identifier: MIT
#include "doubles/fake_nccl_fault.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <deque>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>

#include <strings.h>
#include <unistd.h>

#include "doubles/environment.h"

namespace ddprun::doubles {
namespace {

struct LastError {
  std::mutex mutex;
  std::string text;  // guarded by mutex
};

LastError& last_error() {
  static auto& last = *new LastError;
  return last;
}

struct Planned {
  Rule rule;
  std::map<int, int> seen = {};  // by rank
};

bool at_call(std::string_view action) { return action == "ret" || action == "inprogress"; }

bool names(const Planned& fault, int rank, const std::string& call) {
  const std::string wanted_rank = value_of(fault.rule, "rank", "*");
  const std::string wanted_call = value_of(fault.rule, "call", "*");
  return (wanted_rank == "*" || std::stoi(wanted_rank) == rank) &&
         (wanted_call == "*" || wanted_call == call);
}

/// The next fault that `fits`, of those for this call.
template <class Fits>
Fault find_fault(int rank, const std::string& call, Fits fits) {
  const char* plan = std::getenv("FAKE_NCCL_FAULTS");
  if (!plan || !*plan) return {};
  static std::mutex mutex;  // only with a plan: it orders threads
  static std::string parsed;
  static std::deque<Planned> faults;
  const std::lock_guard lock(mutex);
  if (parsed != plan) {
    parsed = plan;
    faults.clear();
    for (Rule& rule : parse_rules(parsed)) faults.push_back({std::move(rule)});
  }
  Fault found;
  for (Planned& fault : faults) {
    const auto words = split(value_of(fault.rule, "do", ""), ':');
    if (words.empty() || !fits(words[0]) || !names(fault, rank, call)) continue;
    const std::string nth = value_of(fault.rule, "nth", "1");
    const bool now = ++fault.seen[rank] == std::atoi(nth.c_str()) || nth == "*";
    if (now && found.action.empty()) found = {words[0], words.size() > 1 ? std::stoi(words[1]) : 0};
  }
  return found;
}

void show(const std::string& text) {
  std::fprintf(stderr, "[fake nccl] %d: %s\n", static_cast<int>(::getpid()), text.c_str());
}

NcclResult keep(NcclResult result, const std::string& text) {
  const std::lock_guard lock(last_error().mutex);
  last_error().text = text;
  return result;
}

/// Said as the library is loaded, so that nobody takes a log of it for one of NCCL.
const int said_what_it_is =
    std::fprintf(stderr, "TEST DOUBLE of libnccl %d.%d.%d\n", FAKE_NCCL_VERSION / 10000,
                 FAKE_NCCL_VERSION / 100 % 100, FAKE_NCCL_VERSION % 100);

}  // namespace

NcclResult warn(NcclResult result, const std::string& text) {
  const char* level = std::getenv("NCCL_DEBUG");
  if (level && (::strcasecmp(level, "WARN") == 0 || ::strcasecmp(level, "INFO") == 0))
    show("NCCL WARN " + text);
  return keep(result, text);
}

NcclResult complain(NcclResult result, const std::string& text) {
  show(text);
  return keep(result, text);
}

Fault planned_fault(int rank, const std::string& call, When when) {
  return find_fault(rank, call, [when](const std::string& action) {
    return at_call(action) == (when == When::kCalled);
  });
}

Fault planned_fault(int rank, const std::string& call) {
  return find_fault(rank, call, [](const std::string&) { return true; });
}

void act(const Fault& fault) {
  if (fault.is("delay")) std::this_thread::sleep_for(std::chrono::milliseconds(fault.argument));
  if (fault.is("exit")) ::_exit(fault.argument);
  if (fault.is("kill")) ::raise(SIGKILL);
}

}  // namespace ddprun::doubles

using namespace ddprun::doubles;

#if FAKE_NCCL_VERSION >= 21300
const char* ncclGetLastError(NcclComm) {
  thread_local std::string text;  // of the whole process, as with NCCL; a copy, as others change it
  const std::lock_guard lock(last_error().mutex);
  text = last_error().text;
  return text.c_str();
}
#endif
