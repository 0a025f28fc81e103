// SPDX-License-Identifier: MIT
// argv: where the launcher's words end, and what is said about a word that is none of its options.
#include "argv.h"

#include <ddprun/error.h>

#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "support/parse.h"

using namespace ddprun;
using ddprun::test::error_of;
using ddprun::test::parse;
using Words = std::vector<std::string>;

TEST_SUITE("launcher") {
  TEST_CASE("argv: all that follows the program reaches it byte for byte") {
    const Words program = {"./W", "--r=16", "--log", "x",       "--nnodes", "9",
                           "-h",  "--help", "--",    "--tee=3", "",         "a b",
                           "*",   "$HOME",  "$$",    "\xff\n",  "-m",       "--dry_run"};
    Words words = {"--nproc-per-node=2"};
    words.insert(words.end(), program.begin(), program.end());
    const auto line = parse(words);
    CHECK(line.config.program.command == program);
    CHECK(line.config.nodes.nproc_per_node == 2);
    CHECK_FALSE(line.config.program.module);
    CHECK_FALSE(line.dry_run);
    CHECK_FALSE(line.text);
  }

  TEST_CASE("argv: a double dash before the program is dropped, later ones are not") {
    CHECK(parse({"--", "./W"}).config.program.command == Words{"./W"});
    CHECK(parse({"--", "--W", "--"}).config.program.command == Words{"--W", "--"});
    CHECK(parse({"-m", "--", "--", "x"}).config.program.command == Words{"--", "x"});
    CHECK(parse({"-"}).config.program.command == Words{"-"});
  }

  TEST_CASE("argv: the word after a flag is the program") {
    CHECK(parse({"--standalone", "true", "./W"}).config.program.command == Words{"true", "./W"});
    CHECK(parse({"-m", "pkg.train"}).config.program.command == Words{"pkg.train"});
  }

  TEST_CASE("argv: short options take their value in the same word or the next") {
    const std::vector<Words> spellings = {
        {"-r3", "W"}, {"-r", "3", "W"}, {"-r=3", "W"}, {"--redirects=3", "W"}, {"-r0", "-r3", "W"}};
    for (const Words& words : spellings) {
      CAPTURE(words.front());
      CHECK(parse(words).config.logs.redirects == std::vector{Streams::both});
    }
    CHECK(parse({"-t1", "W"}).config.logs.tee == std::vector{Streams::out});
    CHECK(parse({"-m", "W"}).config.program.module);
    CHECK(parse({"-h"}).text.has_value());
  }

  TEST_CASE("argv: help and version need no program and end the reading") {
    for (const char* word : {"--help", "-h", "--version"}) {
      CAPTURE(word);
      CHECK(parse({word}).text.has_value());
      CHECK(parse({"--nproc_per_node", "0", word, "--bogus"}).text.has_value());
    }
    CHECK(error_of({"--bogus", "--help"}).find("--bogus") != std::string::npos);
  }

  TEST_CASE("argv: every wrong word has its one line") {
    struct Case {
      Words words;
      std::string error;
    };
    const std::vector<Case> cases = {
        {{"--nproc", "2", "./W"}, "[cli] --nproc is not an option; did you mean --nproc_per_node?"},
        {{"--nproc=2", "./W"}, "[cli] --nproc is not an option; did you mean --nproc_per_node?"},
        {{"-np", "2", "./W"}, "[cli] -np is not an option; did you mean --nproc_per_node?"},
        {{"--redirect=3", "W"}, "[cli] --redirect is not an option; did you mean --redirects?"},
        {{"--nprocs-per-node=3", "W"},
         "[cli] --nprocs-per-node is not an option; did you mean --nproc_per_node?"},
        {{"--master", "h", "W"},
         "[cli] --master is not an option; did you mean --master_addr or --master_port?"},
        {{"--bogus", "W"}, "[cli] --bogus is not an option; see ddprun --help"},
        {{"-x", "W"}, "[cli] -x is not an option; see ddprun --help"},
        {{"-3", "W"}, "[cli] -3 is not an option; see ddprun --help"},
        {{"---", "W"}, "[cli] --- is not an option; see ddprun --help"},
        {{"--=3", "W"}, "[cli] -- is not an option; see ddprun --help"},
        {{"--Standalone", "W"}, "[cli] --Standalone is not an option; did you mean --standalone?"},
        {{"--nproc_per_node=", "./train"}, "[cli] --nproc_per_node= has an empty value"},
        {{"--log-dir", "", "W"}, "[cli] --log-dir= has an empty value"},
        {{"-r=", "W"}, "[cli] -r= has an empty value"},
        {{"--nproc_per_node"},
         "[cli] --nproc_per_node needs a value: --nproc_per_node N|auto|cpu|gpu"},
        {{"--log_dir", "--tee", "3", "W"}, "[cli] --log_dir needs a value: --log_dir DIR"},
        {{"-r"}, "[cli] -r needs a value: -r MAP"},
        {{"--standalone=1", "W"}, "[cli] --standalone=1: --standalone takes no value"},
        {{"-mx", "W"}, "[cli] -mx: -m takes no value"},
        {{}, "[cli] no program given; usage: ddprun [options] program [arguments]"},
        {{"--standalone"}, "[cli] no program given; usage: ddprun [options] program [arguments]"},
        {{"--"}, "[cli] no program given; usage: ddprun [options] program [arguments]"},
        {{""}, "[config] the program's name is empty"},
        {{"--monitor-interval=1", "W"},
         "[cli] --monitor-interval is an option of torchrun that this version does not have; "
         "leave it out: the end of a rank is noticed at once"},
        {{"--numa_binding", "node", "W"},
         "[cli] --numa_binding is an option of torchrun that this version does not have"},
    };
    for (const Case& c : cases) {
      CAPTURE(c.error);
      CHECK(error_of(c.words) == c.error);
      CHECK_THROWS_AS(parse(c.words), UsageError);
    }
  }

  TEST_CASE(
      "argv: no name is both there and absent, and absent ones are refused in both spellings") {
    for (const AbsentOption& absent : absent_options()) {
      const std::string name(absent.name);
      CAPTURE(name);
      for (const Option& option : option_table()) CHECK(option.name != absent.name);
      std::string dashed = name;
      for (char& c : dashed) c = c == '_' ? '-' : c;
      for (const std::string& spelling : {"--" + name, "--" + dashed})
        CHECK(error_of({spelling, "x", "W"}).starts_with("[cli] " + spelling + " is an option of"));
    }
  }

  TEST_CASE("argv: random words end in a program or in one line") {
    const Words pieces = {"-",
                          "--",
                          "=",
                          "",
                          "nproc_per_node",
                          "nproc-per",
                          "r",
                          "t",
                          "m",
                          "3",
                          "-2",
                          "0:1,3:2",
                          "auto",
                          "standalone",
                          "tee",
                          "log_dir",
                          "master-port",
                          "99999999999",
                          "\xff",
                          "\n",
                          "a b",
                          ",",
                          ":",
                          "rdzv_id",
                          "nnodes",
                          "dry_run",
                          "help",
                          "W",
                          "max_restarts",
                          "9x"};
    const auto seed = std::random_device{}();
    INFO("seed ", seed);
    std::mt19937 random(seed);
    const auto below = [&random](std::size_t n) { return random() % n; };
    int ran = 0;
    for (int round = 0; round < 5000; ++round) {
      Words words(below(6));
      for (std::string& word : words)
        for (auto n = below(5); n > 0; --n) word += pieces[below(pieces.size())];
      try {
        const auto line = parse(words);
        const Words& command = line.config.program.command;
        if (line.text) continue;
        ++ran;
        REQUIRE(command.size() <= words.size());
        CHECK(std::equal(command.rbegin(), command.rend(), words.rbegin()));
      } catch (const UsageError& e) {
        CHECK(std::string(e.what()).starts_with("["));
      }
    }
    CHECK(ran > 100);
  }
}
