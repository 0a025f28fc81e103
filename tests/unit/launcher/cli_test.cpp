// SPDX-License-Identifier: MIT
// cli: values, their spellings, and who wins: command line > PET_* > default.
#include <ddprun/error.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "machine.h"
#include "option_table.h"
#include "support/parse.h"
#include "support/scoped_env.h"

using namespace ddprun;
using ddprun::test::error_of;
using ddprun::test::parse;
using ddprun::test::ScopedEnv;
using Variables = std::map<std::string, std::optional<std::string>>;
using Words = std::vector<std::string>;

namespace {

std::string text_of(const std::vector<Streams>& map) {
  std::string text;
  for (const Streams streams : map) text += std::to_string(static_cast<int>(streams));
  return text;
}

/// Every field of a configuration, to compare two.
std::string text_of(const LaunchConfig& config) {
  std::ostringstream out;
  out << config.program.module << config.program.no_python << ' ' << config.nodes.nnodes << ' '
      << config.nodes.node_rank << ' ' << config.nodes.nproc_per_node << ' '
      << config.nodes.master_addr << ' '
      << (config.nodes.master_port ? std::to_string(*config.nodes.master_port) : "none") << ' '
      << config.nodes.run_id << ' ' << config.nodes.role << ' ' << config.logs.log_dir << ' '
      << text_of(config.logs.redirects) << ' ' << text_of(config.logs.tee) << ' '
      << config.stop.max_restarts << ' ' << config.stop.shutdown_timeout.count();
  return out.str();
}

std::string with_dashes(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

/// A value that is not the default, where this version accepts one.
const std::map<std::string_view, std::string> kSamples = {
    {"nproc_per_node", "3"}, {"nnodes", "1:1"},
    {"node_rank", "0"},      {"master_addr", "localhost"},
    {"master_port", "1234"}, {"rdzv_id", "job-7"},
    {"role", "trainer"},     {"log_dir", "no/such/dir"},
    {"redirects", "2"},      {"tee", "0:1"},
    {"max_restarts", "4"},   {"shutdown_timeout", "90"},
};

bool accepts_only_default(std::string_view name) { return name == "nnodes" || name == "node_rank"; }

}  // namespace

TEST_SUITE("launcher") {
  TEST_CASE("cli: every option works in both spellings, with a space or =, and as a variable") {
    const std::string defaults = text_of(parse({"W"}).config);
    for (const Option& option : option_table()) {
      if (option.group == OptionGroup::about) continue;
      const std::string name(option.name);
      CAPTURE(name);
      std::vector<Words> spellings;
      if (option.is_flag()) {
        spellings = {{"--" + name, "W"}, {"--" + with_dashes(name), "W"}};
      } else {
        const std::string value = kSamples.at(option.name);
        spellings = {{"--" + name, value, "W"},
                     {"--" + name + "=" + value, "W"},
                     {"--" + with_dashes(name), value, "W"},
                     {"--" + with_dashes(name) + "=" + value, "W"}};
      }
      const std::string expected = text_of(parse(spellings.front()).config);
      CHECK((expected != defaults || accepts_only_default(option.name)));
      for (const Words& words : spellings) CHECK(text_of(parse(words).config) == expected);
      const ScopedEnv pet(
          Variables{{option.variable(), option.is_flag() ? "1" : kSamples.at(option.name)}});
      CHECK(text_of(parse({"W"}).config) == expected);
    }
  }

  TEST_CASE("cli: the defaults in words are the defaults of LaunchConfig") {
    CommandLine line;
    for (const Option& option : option_table()) {
      if (option.group == OptionGroup::about || option.default_text.empty()) continue;
      const std::string text =
          option.default_text == "false" ? "0" : std::string(option.default_text);
      option.apply(line, {std::string(option.name), text});
    }
    CHECK(text_of(line.config) == text_of(LaunchConfig{}));
  }

  TEST_CASE("cli: the command line wins over PET, PET over the default") {
    const ScopedEnv scope(Variables{{"PET_MAX_RESTARTS", "5"},
                                    {"PET_MODULE", "1"},
                                    {"PET_SHUTDOWN_TIMEOUT", std::nullopt},
                                    {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7"}});
    CHECK(parse({"W"}).config.stop.max_restarts == 5);
    CHECK(parse({"--max_restarts", "2", "W"}).config.stop.max_restarts == 2);
    CHECK(parse({"--max_restarts", "2", "--max-restarts=3", "W"}).config.stop.max_restarts == 3);
    CHECK(parse({"W"}).config.program.module);
    CHECK(parse({"W"}).config.stop.shutdown_timeout == std::chrono::seconds(7));
    const ScopedEnv pet(Variables{{"PET_SHUTDOWN_TIMEOUT", "8"}, {"PET_MODULE", "0"}});
    CHECK(parse({"W"}).config.stop.shutdown_timeout == std::chrono::seconds(8));
    CHECK_FALSE(parse({"W"}).config.program.module);
    CHECK(parse({"--shutdown_timeout=9", "W"}).config.stop.shutdown_timeout ==
          std::chrono::seconds(9));
  }

  TEST_CASE("cli: an invalid variable is named, unless the command line makes it unused") {
    struct Case {
      const char* variable;
      const char* value;
      const char* error;
    };
    for (const Case& c : {
             Case{"PET_NPROC_PER_NODE", "many",
                  "[cli] PET_NPROC_PER_NODE=many: not a whole number in 1..4096, auto, cpu or gpu"},
             Case{"PET_MODULE", "yes", "[cli] PET_MODULE=yes: not 0 or 1"},
             Case{"PET_STANDALONE", "", "[cli] PET_STANDALONE= has an empty value"},
             Case{"PET_LOG_DIR", "", "[cli] PET_LOG_DIR= has an empty value"},
             Case{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "1m",
                  "[cli] TORCH_ELASTIC_SHUTDOWN_TIMEOUT=1m: not a whole number in 0..604800"},
             Case{
                 "PET_RDZV_BACKEND", "c10d",
                 "[cli] PET_RDZV_BACKEND is set, but this version has no --rdzv_backend; unset it"},
         }) {
      CAPTURE(c.variable);
      const ScopedEnv scope(Variables{{c.variable, c.value}});
      CHECK(error_of({"W"}) == c.error);
      CHECK(parse({"--help"}).text.has_value());
    }
    const ScopedEnv scope(Variables{{"PET_NPROC_PER_NODE", "many"}});
    CHECK(parse({"--nproc_per_node=2", "W"}).config.nodes.nproc_per_node == 2);
  }

  TEST_CASE("cli: numbers are whole and in range, and the error names option and value") {
    const std::string nproc = "not a whole number in 1..4096, auto, cpu or gpu";
    const std::string port = "not a whole number in 0..65535";
    const std::string nodes = "not N or MIN:MAX with 1 <= MIN <= MAX";
    struct Case {
      std::string option;
      std::string value;
      std::string why;
    };
    const std::vector<Case> cases = {
        {"nproc-per-node", "0", nproc},
        {"nproc-per-node", "-2", nproc},
        {"nproc-per-node", "1.5", nproc},
        {"nproc-per-node", "4097", nproc},
        {"nproc-per-node", "99999", nproc},
        {"nproc-per-node", " 4", nproc},
        {"nproc-per-node", "+4", nproc},
        {"nproc-per-node", "GPU", nproc},
        {"master-port", "65536", port},
        {"master-port", "-1", port},
        {"master-port", "69420", port},
        {"master-port", "29500x", port},
        {"master-port", "1e3", port},
        {"nnodes", "0", nodes},
        {"nnodes", "2:1", nodes},
        {"nnodes", "1:", nodes},
        {"nnodes", ":1", nodes},
        {"nnodes", "1:2:3", nodes},
        {"nnodes", "one", nodes},
        {"nnodes", "99999999999999999999", nodes},
        {"nnodes", "1:2",
         "a range of node counts is not supported; one node is what this version can do"},
        {"node-rank", "-1", "not a whole number in 0..2147483647"},
        {"max-restarts", "-1", "not a whole number in 0..1000000"},
        {"shutdown-timeout", "-0.5", "not a whole number in 0..604800"},
        {"shutdown-timeout", "604801", "not a whole number in 0..604800"},
    };
    for (const Case& c : cases) {
      const std::string error = "[cli] --" + c.option + " " + c.value + ": " + c.why;
      CAPTURE(error);
      CHECK(error_of({"--" + c.option + "=" + c.value, "./W"}) == error);
      CHECK(error_of({"--" + c.option, c.value, "./W"}) == error);
      CHECK_THROWS_AS(parse({"--" + c.option, c.value, "./W"}), UsageError);
    }
    CHECK(error_of({"--nnodes=2", "W"}) ==
          "[config] --nnodes 2: one node is what this version can do");
    CHECK(error_of({"--nnodes=2:2", "W"}) ==
          "[config] --nnodes 2: one node is what this version can do");
    CHECK(error_of({"--node_rank=1", "W"}) ==
          "[config] --node_rank 1: must be less than --nnodes 1");
    CHECK(parse({"--nproc_per_node=4096", "W"}).config.nodes.nproc_per_node == 4096);
    CHECK(parse({"--master_port=65535", "W"}).config.nodes.master_port == 65535);
    CHECK(parse({"--shutdown_timeout=0", "W"}).config.stop.shutdown_timeout.count() == 0);
  }

  TEST_CASE("cli: a map names streams for all ranks or by local rank, of any width") {
    using enum Streams;
    const auto redirects = [](const char* map, const char* nproc) {
      return parse({"--nproc_per_node", nproc, "-r", map, "W"}).config.logs.redirects;
    };
    CHECK(redirects("0", "2").empty());
    CHECK(redirects("3", "2") == std::vector{both, both});
    CHECK(redirects("0:1,1:2", "3") == std::vector{out, err, none});
    CHECK(redirects("1:1,1:2", "2") == std::vector{none, err});
    CHECK(text_of(redirects("12:3,0:1", "13")) == "1000000000003");
    for (const char* bad : {"4", "11", "-1", "0:4", "0:1,", ",", "0:", ":1", "0:1,3", "x:1",
                            "0:1:1", "-1:1", "0 :1", "0:11"}) {
      const std::string error = std::string("[cli] --tee ") + bad +
                                ": not 0, 1, 2, 3 or a map of local ranks like 0:1,12:3";
      CHECK(error_of({"--nproc_per_node=2", std::string("--tee=") + bad, "W"}) == error);
    }
    CHECK(error_of({"--tee=0:1,12:3", "--nproc_per_node=12", "W"}) ==
          "[cli] --tee 0:1,12:3: there is no local rank 12 with --nproc_per_node 12");
  }

  TEST_CASE("cli: standalone means any free port, and leaves one that is given") {
    const ScopedEnv scope(Variables{{"MASTER_PORT", "4711"}, {"MASTER_ADDR", "elsewhere"}});
    CHECK_FALSE(parse({"W"}).config.nodes.master_port.has_value());
    CHECK(parse({"--standalone", "W"}).config.nodes.master_port == 0);
    CHECK(parse({"--standalone", "W"}).config.nodes.master_addr == "127.0.0.1");
    CHECK(parse({"--master_port=29511", "--standalone", "W"}).config.nodes.master_port == 29511);
    CHECK(parse({"--master_port=0", "W"}).config.nodes.master_port == 0);
  }

  TEST_CASE("cli: nproc cpu, gpu and auto count what may be used") {
    CHECK(parse({"--nproc_per_node=cpu", "W"}).config.nodes.nproc_per_node == usable_cpus());
    const ScopedEnv none(Variables{{"CUDA_VISIBLE_DEVICES", ""}});
    CHECK(
        error_of({"--nproc_per_node=gpu", "W"}) ==
        "[cli] --nproc_per_node gpu: no GPU is visible, or none is there (CUDA_VISIBLE_DEVICES=)");
    CHECK(parse({"--nproc_per_node=auto", "W"}).config.nodes.nproc_per_node == usable_cpus());
    const ScopedEnv two(Variables{{"CUDA_VISIBLE_DEVICES", "GPU-aa,GPU-bb"}});
    const int gpus = visible_gpus();  // 2, or 0 on a machine without any
    CHECK(parse({"--nproc_per_node=auto", "W"}).config.nodes.nproc_per_node ==
          (gpus == 0 ? usable_cpus() : gpus));
  }

  TEST_CASE("cli: help names every option with its default, within 100 columns") {
    const std::string help = *parse({"--help"}).text;
    for (const Option& option : option_table()) {
      CAPTURE(option.name);
      CHECK(help.find("--" + std::string(option.name)) != std::string::npos);
      if (option.short_name)
        CHECK(help.find(std::string("-") + option.short_name + ", --") != std::string::npos);
    }
    CHECK(help.find("(default: 30)") != std::string::npos);
    std::istringstream lines(help);
    for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 100);
    CHECK(parse({"--version"}).text->starts_with("ddprun "));
  }

  TEST_CASE("cli: conf/default.toml has every setting, in its group, with its default") {
    const auto root = std::filesystem::path(DDPRUN_TEST_DATA).parent_path().parent_path();
    std::ifstream file(root / "conf/default.toml");
    REQUIRE(file);
    std::map<std::string, std::string> values;  // "nodes.master_port": "" when in a comment
    std::string group;
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("[")) group = line.substr(1, line.find(']') - 1) + ".";
      const auto equals = line.find(" = ");
      if (group.empty() || equals == std::string::npos) continue;
      const bool comment = line.starts_with("# ");
      const std::string name = line.substr(comment ? 2 : 0, equals - (comment ? 2 : 0));
      std::string value = line.substr(equals + 3);
      value = value.substr(0, value.find_first_of(" #"));
      std::erase(value, '"');
      values[group + name] = comment ? "" : value;
    }
    for (const Option& option : option_table()) {
      if (option.group == OptionGroup::about) continue;
      const std::string key = std::string(name_of(option.group)) + "." + std::string(option.name);
      CAPTURE(key);
      REQUIRE(values.contains(key));
      CHECK(values[key] == option.default_text);
      values.erase(key);
    }
    for (const auto& [key, value] : values) FAIL_CHECK("no such option: ", key);
  }
}
