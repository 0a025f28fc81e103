// SPDX-License-Identifier: MIT
// Finds deaths, records the first failure and words it; see health.h.
#include "comm/cpu/health.h"

#include <ddprun/error.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/core.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ddprun {
namespace {

std::string_view name_of(CallKind kind) {
  switch (kind) {
    case CallKind::all_reduce:
      return "all_reduce";
    case CallKind::broadcast:
      return "broadcast";
    case CallKind::barrier:
      return "barrier";
    case CallKind::allocate:
      return "allocate";
  }
  return "?";
}

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::avg:
      return "avg";
    case ReduceOp::min:
      return "min";
    case ReduceOp::max:
      return "max";
  }
  return "?";
}

void poison_all(Page& page) {
  page.bell[0].flag.poison();
  page.bell[1].flag.poison();
  page.in.poison();
  page.out.poison();
}

struct Majority {
  int odd;       // lowest rank that is not with the majority
  int ordinary;  // lowest rank that is
};

// Most ranks decide what was right; at a tie those that include the lowest rank.
Majority find_majority(const std::vector<Call>& calls) {
  std::size_t best = 0;
  std::ptrdiff_t best_votes = 0;
  for (std::size_t r = 0; r < calls.size(); ++r) {
    const auto votes = std::count(calls.begin(), calls.end(), calls[r]);
    if (votes > best_votes) {
      best = r;
      best_votes = votes;
    }
  }
  const auto odd = std::find_if(calls.begin(), calls.end(),
                                [&](const Call& call) { return call != calls[best]; });
  return {static_cast<int>(odd - calls.begin()), static_cast<int>(best)};
}

}  // namespace

std::string describe(const Call& call) {
  const auto kind = name_of(call.kind);
  const auto data = fmt::format("{} x {}", name_of(call.dtype), call.numel);
  switch (call.kind) {
    case CallKind::all_reduce:
      return fmt::format("{}({}, {})", kind, name_of(call.op), data);
    case CallKind::broadcast:
      return fmt::format("{}({}, root {})", kind, data, call.root);
    case CallKind::barrier:
      return fmt::format("{}()", kind);
    case CallKind::allocate:
      return fmt::format("{}({} bytes)", kind, call.numel);
  }
  return "?";
}

void init_lifeline(Page& page) {
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutex_init(&page.lifeline, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
}

Health::Health(int rank, std::vector<Page*> pages, const std::vector<pid_t>& pids,
               std::chrono::milliseconds timeout)
    : rank_(rank), pages_(std::move(pages)), central_(pages_[0]->central), timeout_(timeout) {
  for (const pid_t pid : pids) {
    processes_.emplace_back(pid > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)) : -1);
    watched_.push_back({processes_.back().get(), POLLIN, 0});
  }
}

void Health::begin(const Call& call, std::uint64_t sequence, std::uint32_t step) {
  call_ = call;
  sequence_ = sequence;
  step_ = step;
  if (failed()) throw_failure();
}

// The kernel marks a dead process's robust mutexes before it takes its memory down (0.1 s per GiB),
// and only then raises the pidfd, which is for what may go wrong with the former. A lifeline that
// is free belongs to a rank that has left in order: it is missed when somebody waits for it.
std::optional<int> Health::find_dead() {
  for (std::size_t r = 0; r < pages_.size(); ++r) {
    if (static_cast<int>(r) == rank_) continue;
    const int held = ::pthread_mutex_trylock(&pages_[r]->lifeline);
    if (held == EBUSY) continue;
    if (held == 0 || held == EOWNERDEAD) ::pthread_mutex_unlock(&pages_[r]->lifeline);
    if (held != 0) return static_cast<int>(r);
    watched_[r].fd = -1;
  }
  if (::poll(watched_.data(), watched_.size(), 0) <= 0) return std::nullopt;
  const auto ended = std::find_if(watched_.begin(), watched_.end(),
                                  [](const pollfd& process) { return process.revents != 0; });
  return static_cast<int>(ended - watched_.begin());
}

void Health::record(int rank, Cause cause) {
  const auto mine = static_cast<std::uint64_t>(cause) << 32 | static_cast<std::uint32_t>(rank);
  std::uint64_t none = 0;
  central_.failure.compare_exchange_strong(none, mine, std::memory_order_acq_rel);
  for (Page* page : pages_) poison_all(*page);
  central_.done.poison();
}

void Health::record_own(Cause cause, std::string_view reason) {
  if (reason_given_.exchange(true)) return;
  char* const text = pages_[static_cast<std::size_t>(rank_)]->reason;
  const std::size_t length = std::min(reason.size(), kReasonBytes - 1);
  std::memcpy(text, reason.data(), length);
  text[length] = '\0';
  record(rank_, cause);
}

void Health::fail(int rank, Cause cause) {
  record(rank, cause);
  throw_failure();
}

void Health::fail_difference() { fail(find_majority(calls()).odd, Cause::differs); }

void Health::leave() {
  poison_all(*pages_[static_cast<std::size_t>(rank_)]);
  central_.done.poison();
}

std::string Health::describe(int rank, Cause cause) const {
  const auto operation = [&]() -> std::string {
    if (looks_on_) return "[process_group] watching the ranks";
    if (sequence_ == 0) return "[process_group] set-up";
    return fmt::format("[process_group] {} #{}", ddprun::describe(call_), sequence_);
  }();
  const char* const reason = pages_[static_cast<std::size_t>(rank)]->reason;
  const auto who = rank == rank_ ? std::string("this rank") : fmt::format("rank {}", rank);
  switch (cause) {
    case Cause::died:
      return fmt::format("{}: the process of {} has ended; see its output", operation, who);
    case Cause::left:
      if (rank == rank_) return fmt::format("{}: group destroyed", operation);
      return fmt::format(
          "{}: {} has left the group (destroyed it, or ended); all ranks must make the same calls",
          operation, who);
    case Cause::silent:
      if (rank == rank_)
        return fmt::format(
            "{}: the other ranks gave up waiting for this rank after {} ms (timeout); see what it "
            "was doing, or raise ProcessGroupOptions::timeout",
            operation, timeout_.count());
      return fmt::format(
          "{}: {} has not arrived within {} ms; see what it is doing, or raise "
          "ProcessGroupOptions::timeout",
          operation, who, timeout_.count());
    case Cause::aborted:
      return fmt::format("{}: {} aborted the group: {}", operation, who, reason);
    case Cause::failed:
      return fmt::format("{}: {} failed: {}", operation, who, reason);
    case Cause::differs:
      return describe_difference();
    case Cause::none:
      break;
  }
  return operation;
}

std::vector<Call> Health::calls() const {
  std::vector<Call> all;
  for (const Page* page : pages_) all.push_back(page->bell[step_ & 1].call);
  return all;
}

// All ranks have rung for this step and nobody goes on, so the bells stay as they are.
std::string Health::describe_difference() const {
  if (looks_on_)
    return fmt::format("[process_group] rank {} made another call than the others",
                       static_cast<int>(central_.failure.load() & 0xffffffffU));
  const std::vector<Call> all = calls();
  const Majority found = find_majority(all);
  return fmt::format(
      "[process_group] operation #{}: rank {} called {}, but rank {} called {}; all ranks must "
      "make "
      "the same calls in the same order",
      sequence_, found.odd, ddprun::describe(all[static_cast<std::size_t>(found.odd)]),
      found.ordinary, ddprun::describe(all[static_cast<std::size_t>(found.ordinary)]));
}

void Health::throw_failure() const {
  const auto failure = central_.failure.load(std::memory_order_acquire);
  const auto rank = static_cast<int>(failure & 0xffffffffu);
  const auto cause = static_cast<Cause>(failure >> 32);
  const auto text = describe(rank, cause);
  if (cause == Cause::silent) throw TimeoutError(text);
  if (rank == rank_ && cause != Cause::differs) throw Error(text);
  throw RemoteError(rank, text);
}

}  // namespace ddprun
