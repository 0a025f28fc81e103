// SPDX-License-Identifier: MIT
// Forks ranks and listens to them; see rank_processes.h.
#include "support/rank_processes.h"

#include <ddprun/error.h>
#include <ddprun/tcp_store.h>

#include <csignal>
#include <cstdio>
#include <sstream>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/socket.h"

namespace ddprun::test {

void Voice::say(const std::string& line) const {
  const auto text = line + "\n";
  if (::write(fd_, text.data(), text.size()) < 0) ::_exit(3);
}

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Failure Failure::parse(const std::string& line) {
  Failure failure;
  std::istringstream words(line);
  words >> failure.type >> failure.rank >> failure.at_us;
  std::getline(words, failure.text);
  return failure;
}

std::string Failure::line() const {
  return type + " " + std::to_string(rank) + " " + std::to_string(at_us) + " " + text;
}

Failure failure_of(const std::function<void()>& fn) {
  try {
    fn();
    return {"none", -1, now_us(), ""};
  } catch (const RemoteError& e) {
    return {"RemoteError", e.rank(), now_us(), e.what()};
  } catch (const TimeoutError& e) {
    return {"TimeoutError", -1, now_us(), e.what()};
  } catch (const DeviceError& e) {
    return {"DeviceError", -1, now_us(), e.what()};
  } catch (const std::exception& e) {
    return {"Error", -1, now_us(), e.what()};
  }
}

RankProcesses::RankProcesses(int n, std::chrono::milliseconds timeout, const Fn& fn,
                             const std::function<void(int rank)>& prepare,
                             const std::string& backend)
    : children_(static_cast<std::size_t>(n)) {
  UniqueFd listener = listen_tcp("127.0.0.1", 0);
  const auto port = local_port(listener.get());
  std::fflush(stdout);
  std::fflush(stderr);
  for (int rank = 0; rank < n; ++rank) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw ConnectionError("pipe2");
    Child& child = children_[static_cast<std::size_t>(rank)];
    child.pipe.reset(ends[0]);
    child.pid = ::fork();
    if (child.pid != 0) {
      ::close(ends[1]);
      continue;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const Voice voice(ends[1]);
    const auto failure = failure_of([&] {
      prepare(rank);
      ProcessGroup group(
          connect_tcp_store({.host = "127.0.0.1", .port = port}, Deadline::after(timeout)), rank, n,
          {.backend = backend, .timeout = timeout, .device = rank});
      fn(group, voice);
    });
    if (failure.type != "none") voice.say(failure.line());
    ::_exit(failure.type == "none" ? 0 : 1);
  }
  server_ = std::make_unique<TcpStoreServer>(std::move(listener));  // a thread: after the forks
}

RankProcesses::~RankProcesses() {
  for (std::size_t r = 0; r < children_.size(); ++r) {
    if (children_[r].pid < 0) continue;
    ::kill(children_[r].pid, SIGKILL);
    wait(static_cast<int>(r));
  }
}

void RankProcesses::signal(int rank, int number) const {
  ::kill(children_[static_cast<std::size_t>(rank)].pid, number);
}

std::string RankProcesses::hear(int rank, Deadline deadline) {
  Child& child = children_[static_cast<std::size_t>(rank)];
  for (;;) {
    if (const auto end = child.heard.find('\n'); end != std::string::npos) {
      auto line = child.heard.substr(0, end);
      child.heard.erase(0, end + 1);
      return line;
    }
    pollfd entry{child.pipe.get(), POLLIN, 0};
    if (::poll(&entry, 1, static_cast<int>(deadline.remaining().count())) <= 0) {
      if (deadline.expired()) throw TimeoutError("rank " + std::to_string(rank) + " says nothing");
      continue;
    }
    char buffer[4096];
    const auto got = ::read(child.pipe.get(), buffer, sizeof buffer);
    if (got <= 0) return {};
    child.heard.append(buffer, static_cast<std::size_t>(got));
  }
}

bool RankProcesses::said_something(int rank) const {
  const Child& child = children_[static_cast<std::size_t>(rank)];
  pollfd entry{child.pipe.get(), POLLIN, 0};
  return child.heard.find('\n') != std::string::npos || ::poll(&entry, 1, 0) > 0;
}

bool RankProcesses::silent_for(std::chrono::milliseconds quiet) {
  std::vector<pollfd> entries;
  for (const Child& child : children_) {
    if (!child.heard.empty()) return false;
    entries.push_back({child.pipe.get(), POLLIN, 0});
  }
  return ::poll(entries.data(), entries.size(), static_cast<int>(quiet.count())) == 0;
}

int RankProcesses::wait(int rank) {
  int status = 0;
  ::waitpid(std::exchange(children_[static_cast<std::size_t>(rank)].pid, -1), &status, 0);
  return status;
}

}  // namespace ddprun::test
