// SPDX-License-Identifier: MIT
// describe: a dry run that a shell can take, and that changes nothing.
#include <ddprun/error.h>
#include <ddprun/launch.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>

#include <doctest/doctest.h>

#include "support/parse.h"
#include "support/temp_dir.h"

using namespace ddprun;
using ddprun::test::parse;
using ddprun::test::TempDir;

namespace {

/// What a shell prints when it executes `script`.
std::string run_in_shell(const std::string& script) {
  const TempDir dir;
  const auto file = dir.path() / "script";
  std::ofstream(file) << script;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(("sh " + file.string()).c_str(), "r"),
                                                   ::pclose);
  REQUIRE(pipe);
  std::string out;
  for (int c = 0; (c = std::fgetc(pipe.get())) != EOF;) out += static_cast<char>(c);
  return out;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_SUITE("launcher") {
  TEST_CASE("describe: a shell runs its lines with the bytes that the ranks would get") {
    const auto line = parse({"--nproc_per_node", "2", "--role", "it's $HOME `id`", "--dry_run",
                             "sh", "-c", R"(printf '[%s]' "$RANK" "$WORLD_SIZE" "$ROLE_NAME" "$@")",
                             "W", "a b", "", "$HOME", "it's", "*", "new\nline", "--", "\xff"});
    CHECK(line.dry_run);
    const std::string tail = "[2][it's $HOME `id`][a b][][$HOME][it's][*][new\nline][--][\xff]";
    CHECK(run_in_shell(describe(line.config)) == "[0]" + tail + "[1]" + tail);
  }

  TEST_CASE("describe: says where the ranks would meet and where the logs would go") {
    const TempDir dir;
    const auto logs = dir.path() / "not yet";
    const auto text = describe(
        parse({"--log_dir", logs.string(), "--rdzv_id", "job-7", "-r1", "train.py"}).config);
    CHECK(contains(text, "29500 or any free one"));
    CHECK(contains(text, "\npython3 -u train.py\n"));
    const std::string rank_dir = (logs / "job-7_XXXXXX/attempt_0/0").string();
    CHECK(contains(text, "stdout: " + rank_dir + "/stdout.log;"));
    CHECK(contains(text, "stderr: " + rank_dir + "/stderr.log and console\n"));
    CHECK_FALSE(std::filesystem::exists(logs));
    CHECK(contains(describe(parse({"--master_port=0", "W"}).config), "port any free one"));
    CHECK(contains(describe(parse({"--master_port=4711", "W"}).config), "MASTER_PORT=4711"));
  }

  TEST_CASE("describe: refuses what run would refuse") {
    CHECK_THROWS_AS(describe(LaunchConfig{}), UsageError);
  }
}
