// SPDX-License-Identifier: MIT
// LineSplitter: whole lines whatever the reads were, nothing lost, memory bounded.
#include "line_splitter.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

using namespace ddprun;
using namespace std::string_literals;

namespace {

struct Piece {
  std::string text;
  LineEnd end;
  bool operator==(const Piece&) const = default;
};
using Pieces = std::vector<Piece>;

class Splitter {
 public:
  Splitter& feed(std::string_view bytes) {
    splitter_.feed(bytes, emit_);
    return *this;
  }
  Splitter& flush() {
    splitter_.flush(emit_);
    return *this;
  }
  Splitter& finish() {
    splitter_.finish(emit_);
    return *this;
  }
  Pieces take() { return std::exchange(pieces_, {}); }
  bool holds_back() const { return splitter_.holds_back(); }

 private:
  Pieces pieces_;
  LineSplitter splitter_;
  LineSplitter::Emit emit_ = [this](std::string_view text, LineEnd end) {
    pieces_.push_back({std::string(text), end});
  };
};

constexpr auto kLine = LineEnd::newline;
constexpr auto kBar = LineEnd::carriage_return;
constexpr auto kOpen = LineEnd::none;

}  // namespace

TEST_SUITE("launcher") {
  TEST_CASE("LineSplitter: a line waits for its end") {
    Splitter splitter;
    CHECK(splitter.feed("one\ntw").take() == Pieces{{"one", kLine}});
    CHECK(splitter.holds_back());
    CHECK(splitter.feed("o\n\n").take() == Pieces{{"two", kLine}, {"", kLine}});
    CHECK_FALSE(splitter.holds_back());
    CHECK(splitter.finish().take().empty());
  }

  TEST_CASE("LineSplitter: the last line gets its end when the stream ends") {
    CHECK(Splitter().feed("tail").finish().take() == Pieces{{"tail", kLine}});
    CHECK(Splitter().feed("tail").flush().finish().take() == Pieces{{"tail", kOpen}, {"", kLine}});
  }

  TEST_CASE("LineSplitter: a flushed line goes on and ends once") {
    Splitter splitter;
    CHECK(splitter.feed("abc").flush().take() == Pieces{{"abc", kOpen}});
    CHECK(splitter.flush().take().empty());
    CHECK(splitter.feed("def\n").take() == Pieces{{"def", kLine}});
  }

  TEST_CASE("LineSplitter: carriage returns end updates, but not before a newline") {
    CHECK(Splitter().feed("\r 1%\r 2%\r").take() == Pieces{{" 1%", kBar}});
    CHECK(Splitter().feed("\r 1%\r 2%\r").flush().take() == Pieces{{" 1%", kBar}, {" 2%", kBar}});
    CHECK(Splitter().feed("dos\r\nx\n").take() == Pieces{{"dos\r", kLine}, {"x", kLine}});
    CHECK(Splitter().feed("dos\r").feed("\n").take() == Pieces{{"dos\r", kLine}});
    CHECK(Splitter().feed("1%\r").feed("2%\n").take() == Pieces{{"1%", kBar}, {"2%", kLine}});
    CHECK(Splitter().feed("1%\r\r\r2%\n").take() == Pieces{{"1%", kBar}, {"2%", kLine}});
  }

  TEST_CASE("LineSplitter: bytes are bytes") {
    CHECK(Splitter().feed("\xff\0\xc0\n"s).take() == Pieces{{"\xff\0\xc0"s, kLine}});
  }

  TEST_CASE("LineSplitter: a line over the bound comes in pieces") {
    Splitter splitter;
    const std::string chunk(40 * 1024, 'x');
    std::size_t size = 0;
    for (int i = 0; i < 100; ++i)
      for (const Piece& piece : splitter.feed(chunk).take()) {
        CHECK(piece.end == kOpen);
        CHECK(piece.text.size() <= LineSplitter::kMaxHeld);
        size += piece.text.size();
      }
    CHECK(size + LineSplitter::kMaxHeld >= 100 * chunk.size());
    for (const Piece& piece : splitter.feed("end\n").take()) size += piece.text.size();
    CHECK(size == 100 * chunk.size() + 3);
  }

  TEST_CASE("LineSplitter: any chunking gives the same lines") {
    std::mt19937 random(4711);
    for (int round = 0; round < 200; ++round) {
      std::string bytes;
      std::vector<std::string> lines;
      for (int i = 0; i < 50; ++i) {
        lines.emplace_back(random() % 40, static_cast<char>('a' + i % 26));
        bytes += lines.back() + '\n';
      }
      Splitter splitter;
      for (std::string_view rest = bytes; !rest.empty();) {
        const std::size_t n = std::min<std::size_t>(1 + random() % 60, rest.size());
        splitter.feed(rest.substr(0, n));
        rest.remove_prefix(n);
        if (random() % 4 == 0) splitter.flush();
      }
      std::vector<std::string> joined(1);
      for (const Piece& piece : splitter.finish().take()) {
        joined.back() += piece.text;
        if (piece.end == kLine) joined.emplace_back();
      }
      joined.pop_back();
      REQUIRE_MESSAGE(joined == lines, "round ", round, " of seed 4711");
    }
  }
}
