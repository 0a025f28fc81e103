// SPDX-License-Identifier: MIT
// A worker that does what its arguments say, one after the other: "step", "step:value", and
// "2@step:value" for rank 2 alone, "!2@step:value" for all others. Ends with 0 unless told else.
#include <ddprun/record.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace {

const char* self = nullptr;

int number(std::string_view text) { return std::atoi(std::string(text).c_str()); }

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0) std::_Exit(99);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

std::string unescape(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      result += text[i];
      continue;
    }
    const char c = text[++i];
    result += c == 'n' ? '\n' : c == 'r' ? '\r' : c == 'x' ? '\xff' : c == '0' ? '\0' : c;
  }
  return result;
}

void lines(int fd, const char* rank, int count) {
  for (int i = 0; i < count; ++i)
    write_all(fd, "rank " + std::string(rank) + " line " + std::to_string(i) + " " +
                      std::string(static_cast<std::size_t>(i % 97), '.') + "\n");
}

void pause_for(std::string_view milliseconds) {
  const int ms = number(milliseconds);
  timespec time = {ms / 1000, ms % 1000 * 1'000'000L};
  while (::nanosleep(&time, &time) != 0) {
  }
}

[[noreturn]] void wait_for_ever() {
  for (;;) ::pause();
}

void on_signal_exit(int signal) {
  write_all(STDOUT_FILENO, "got " + std::to_string(signal) + "\n");
  std::_Exit(0);
}

void on_signal_fail(int) { std::_Exit(44); }

void on_signal_say(int signal) { write_all(STDOUT_FILENO, "got " + std::to_string(signal) + "\n"); }

void on_signal_loop(int) {
  for (;;) ::pause();
}

void handle(std::string_view signal, void (*handler)(int)) { std::signal(number(signal), handler); }

/// hold: a child that keeps the pipe; stubborn: it also ignores TERM; daemon: one that left the
/// session and keeps the pipe, by way of a parent that ends.
void leave_behind(std::string_view kind) {
  if (::fork() != 0) return;
  if (kind == "daemon") {
    ::setsid();
    if (::fork() != 0) std::_Exit(0);
    ::execl(self, self, "wait", nullptr);
  }
  if (kind == "stubborn") std::signal(SIGTERM, SIG_IGN);
  wait_for_ever();
}

void write_record(std::string_view json) {
  const int fd = ::open(std::getenv("TORCHELASTIC_ERROR_FILE"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  write_all(fd, json);
}

/// The record of a rank that ended because of another one.
void blame(std::string_view rank) {
  write_record(R"({"message": {"message": "ddprun::RemoteError: rank )" + std::string(rank) +
               R"( has left", "extraInfo": {"remote_rank": ")" + std::string(rank) + R"("}}})");
}

[[noreturn]] void die_of(int signal) {
  const rlimit no_core = {0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
  std::_Exit(98);
}

void do_step(std::string_view step, std::string_view value, const char* rank) {
  const std::map<std::string_view, std::function<void()>> steps = {
      {"lines", [&] { lines(STDOUT_FILENO, rank, number(value)); }},
      {"errlines", [&] { lines(STDERR_FILENO, rank, number(value)); }},
      {"out", [&] { write_all(STDOUT_FILENO, unescape(value)); }},
      {"err", [&] { write_all(STDERR_FILENO, unescape(value)); }},
      {"long",
       [&] {
         for (int i = 0; i < number(value); ++i) write_all(STDOUT_FILENO, std::string(65536, 'x'));
       }},
      {"env",
       [&] {
         const char* text = std::getenv(std::string(value).c_str());
         write_all(STDOUT_FILENO, std::string(value) + "=" + (text ? text : "(unset)") + "\n");
       }},
      {"exit", [&] { std::_Exit(number(value)); }},
      {"exit_once",
       [&] {
         if (number(std::getenv("TORCHELASTIC_RESTART_COUNT")) < number(value)) std::_Exit(1);
       }},
      {"raise", [&] { die_of(number(value)); }},
      {"throw", [&] { throw std::runtime_error(std::string(value)); }},
      {"ignore", [&] { handle(value, SIG_IGN); }},
      {"exit_on", [&] { handle(value, on_signal_exit); }},
      {"fail_on", [&] { handle(value, on_signal_fail); }},
      {"say_on", [&] { handle(value, on_signal_say); }},
      {"loop_on", [&] { handle(value, on_signal_loop); }},
      {"leave", [&] { leave_behind(value); }},
      {"half_a_record", [&] { write_record(R"({"message": {"message": "Val)"); }},
      {"blame", [&] { blame(value); }},
      {"pause", [&] { pause_for(value); }},
      {"wait", [&] { wait_for_ever(); }},
  };
  const auto at = steps.find(step);
  if (at == steps.end()) throw std::invalid_argument("no step " + std::string(step));
  at->second();
}

/// Whether a step with this prefix ("2@", "!2@" or none) is for this rank; drops the prefix.
bool is_for(const char* rank, std::string_view& step) {
  const std::size_t at = step.find('@');
  if (at == std::string_view::npos || at > 3) return true;
  std::string_view whom = step.substr(0, at);
  step.remove_prefix(at + 1);
  if (!whom.starts_with('!')) return whom == rank;
  return whom.substr(1) != rank;
}

}  // namespace

int main(int argc, char** argv) {
  self = argv[0];
  const char* rank = std::getenv("RANK") ? std::getenv("RANK") : "-";
  const auto env = ddprun::WorkerEnv::from_environment().value_or(ddprun::WorkerEnv{});
  return ddprun::record(
      [&](const ddprun::WorkerEnv&) {
        for (int i = 1; i < argc; ++i) {
          std::string_view step = argv[i];
          if (!is_for(rank, step)) continue;
          const std::size_t colon = step.find(':');
          do_step(step.substr(0, colon),
                  colon == std::string_view::npos ? "" : step.substr(colon + 1), rank);
        }
        return 0;
      },
      env);
}
