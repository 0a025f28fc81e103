// SPDX-License-Identifier: MIT
// Console: lines of many ranks on one descriptor, and readers that are slow.
#include "console.h"

#include <array>
#include <csignal>
#include <string>
#include <tuple>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include "spawn_child.h"

using namespace ddprun;

namespace {

const LogSource kRank0{.rank = 0, .stream = Streams::out, .tag = "[rank0]: "};
const LogSource kRank1{.rank = 1, .stream = Streams::out, .tag = "[rank1]: "};
const LogSource kErr1{.rank = 1, .stream = Streams::err, .tag = "[rank1]: "};

/// Both streams of a console, as pipes of the smallest size.
class Reader {
 public:
  explicit Reader(bool one_pipe = false) {
    std::tie(read_, write_) = open_pipe();
    ::fcntl(read_.get(), F_SETFL, O_NONBLOCK);
    ::fcntl(write_.get(), F_SETPIPE_SZ, 4096);
    if (!one_pipe) std::tie(err_read_, err_write_) = open_pipe();
  }
  int out() const { return write_.get(); }
  int err() const { return err_write_ ? err_write_.get() : write_.get(); }
  std::string read() const { return read_from(read_.get()); }
  std::string read_err() const { return read_from(err_read_.get()); }

 private:
  static std::string read_from(int fd) {
    std::array<char, 65536> buffer;
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    return {buffer.data(), n > 0 ? static_cast<std::size_t>(n) : 0};
  }
  UniqueFd read_, write_, err_read_, err_write_;
};

}  // namespace

TEST_SUITE("launcher") {
  TEST_CASE("Console: a line that goes on keeps its tag until another rank writes") {
    Loop loop;
    const Reader reader;
    Console console(loop, reader.out(), reader.err());
    console.write(kRank0, "abc", LineEnd::none);
    console.write(kRank0, "def", LineEnd::newline);
    console.write(kRank0, "ghi", LineEnd::none);
    console.write(kRank1, "one", LineEnd::newline);
    console.write(kRank0, "jkl", LineEnd::newline);
    console.flush();
    CHECK(reader.read() == "[rank0]: abcdef\n[rank0]: ghi\n[rank1]: one\n[rank0]: jkl\n");
  }

  TEST_CASE("Console: a bar's updates carry a tag each and its end adds none") {
    Loop loop;
    const Reader reader;
    Console console(loop, reader.out(), reader.err());
    console.write(kRank0, " 1%", LineEnd::carriage_return);
    console.write(kRank0, " 2%", LineEnd::carriage_return);
    console.write(kRank0, "", LineEnd::newline);
    console.write(kRank1, " 1%", LineEnd::carriage_return);
    console.write(kRank0, "x", LineEnd::newline);
    console.flush();
    CHECK(reader.read() == "[rank0]:  1%\r[rank0]:  2%\r\n[rank1]:  1%\r\n[rank0]: x\n");
  }

  TEST_CASE("Console: stdout and stderr of one pipe keep their order") {
    Loop loop;
    const Reader reader(true);
    Console console(loop, reader.out(), reader.err());
    console.write(kRank1, "a", LineEnd::none);
    console.write(kErr1, "b", LineEnd::newline);
    console.say("c");
    CHECK(reader.read() == "[rank1]: a\n[rank1]: b\n[ddprun] c\n");
  }

  TEST_CASE("Console: a slow reader makes it congested, loses nothing, and gets the rest") {
    Loop loop;
    const Reader reader;
    Console console(loop, reader.out(), reader.err());
    bool room = false;
    console.on_room([&] { room = !console.congested(Streams::out); });
    std::string written;
    for (int i = 0; !console.congested(Streams::out); ++i) {
      const std::string line = "line " + std::to_string(i);
      console.write(kRank0, line, LineEnd::newline);
      console.flush();
      written += "[rank0]: " + line + "\n";
    }
    CHECK(written.size() > ConsoleStream::kHighWater);
    CHECK_FALSE(room);
    std::string read;
    const auto limit = loop.after(std::chrono::seconds(10), [&] { loop.stop(); });
    while (read.size() < written.size()) {
      read += reader.read();
      const auto turn = loop.after(std::chrono::milliseconds(0), [&] { loop.stop(); });
      loop.run();
    }
    CHECK(room);
    CHECK(read == written);
  }

  TEST_CASE("Console: a reader that is gone is said on the other stream, once") {
    Loop loop;
    const Reader reader;
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    ::close(ends[0]);
    const UniqueFd gone(ends[1]);
    const auto old = std::signal(SIGPIPE, SIG_IGN);
    Console console(loop, gone.get(), reader.err());
    for (int i = 0; i < 3; ++i) {
      console.write(kRank0, "x", LineEnd::newline);
      console.flush();
    }
    std::signal(SIGPIPE, old);
    CHECK(reader.read_err() ==
          "[ddprun] warning: stdout takes nothing any more (Broken pipe); the ranks go on\n");
    CHECK_FALSE(console.congested(Streams::out));
  }
}
