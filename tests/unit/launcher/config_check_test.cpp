// SPDX-License-Identifier: MIT
// config_check and run_directory: what cannot work is refused before anything is started.
#include "config_check.h"

#include <ddprun/error.h>

#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include <doctest/doctest.h>
#include <sys/stat.h>

#include "run_directory.h"
#include "support/scoped_env.h"
#include "support/temp_dir.h"

using namespace ddprun;
using ddprun::test::ScopedEnv;
using Variables = std::map<std::string, std::optional<std::string>>;
using ddprun::test::TempDir;
namespace fs = std::filesystem;

namespace {

LaunchConfig plain() {
  LaunchConfig config;
  config.program.command = {"./W"};
  return config;
}

LaunchConfig with_log_dir(const fs::path& log_dir) {
  LaunchConfig config = plain();
  config.logs.log_dir = log_dir;
  return config;
}

/// The working directory for the length of a test.
class ScopedDirectory {
 public:
  explicit ScopedDirectory(const fs::path& path) { fs::current_path(path); }
  ScopedDirectory(const ScopedDirectory&) = delete;
  ScopedDirectory& operator=(const ScopedDirectory&) = delete;
  ~ScopedDirectory() { fs::current_path(old_); }

 private:
  fs::path old_ = fs::current_path();
};

}  // namespace

TEST_SUITE("launcher") {
  TEST_CASE("config: each rule has its one line") {
    check_config(plain());
    struct Case {
      std::function<void(LaunchConfig&)> spoil;
      const char* error;
    };
    const std::vector<Case> cases = {
        {[](auto& c) { c.program.command.clear(); }, "[config] no program given"},
        {[](auto& c) { c.program.command = {""}; }, "[config] the program's name is empty"},
        {[](auto& c) { c.program.module = c.program.no_python = true; },
         "[config] --module and --no_python exclude each other: a module is run by Python"},
        {[](auto& c) { c.nodes.nnodes = 2; },
         "[config] --nnodes 2: one node is what this version can do"},
        {[](auto& c) { c.nodes.node_rank = 1; },
         "[config] --node_rank 1: must be less than --nnodes 1"},
        {[](auto& c) { c.nodes.nproc_per_node = 0; },
         "[config] --nproc_per_node 0: not in 1..4096"},
        {[](auto& c) { c.nodes.nproc_per_node = 4097; },
         "[config] --nproc_per_node 4097: not in 1..4096"},
        {[](auto& c) { c.nodes.master_addr = ""; }, "[config] --master_addr is empty"},
        {[](auto& c) {
           c.logs.tee = {Streams::both, Streams::both};
         },
         "[config] --tee speaks of 2 local ranks, --nproc_per_node is 1"},
        {[](auto& c) {
           c.logs.redirects = {Streams::out, Streams::out};
         },
         "[config] --redirects speaks of 2 local ranks, --nproc_per_node is 1"},
        {[](auto& c) { c.logs.log_dir = "/dev/null"; },
         "[config] --log_dir /dev/null: exists and is not a directory"},
        {[](auto& c) { c.stop.max_restarts = -1; },
         "[config] --max_restarts -1: must not be negative"},
        {[](auto& c) { c.stop.shutdown_timeout = std::chrono::milliseconds(-1); },
         "[config] --shutdown_timeout -1 ms: must not be negative"},
    };
    for (const Case& c : cases) {
      LaunchConfig config = plain();
      c.spoil(config);
      CHECK_THROWS_WITH_AS(check_config(config), c.error, UsageError);
    }
  }

  TEST_CASE("run directory: none without log_dir and redirects") {
    LaunchConfig config = plain();
    CHECK(make_run_directory(config, "id").empty());
    config.logs.tee = {Streams::both};
    CHECK(make_run_directory(config, "id").empty());
    config.logs.redirects = {Streams::none};
    CHECK(make_run_directory(config, "id").empty());
  }

  TEST_CASE("run directory: new for every run, absolute, and for its owner only") {
    const TempDir dir;
    const ScopedDirectory here(dir.path());
    const LaunchConfig config = with_log_dir("missing parents/a b/../logs");
    std::set<fs::path> made;
    for (int i = 0; i < 20; ++i) {
      const auto path = make_run_directory(config, "job-7");
      CHECK(path.is_absolute());
      CHECK(path.parent_path() == fs::canonical(dir.path()) / "missing parents/logs");
      CHECK(path.filename().string().starts_with("job-7_"));
      struct stat info {};
      REQUIRE(::stat(path.c_str(), &info) == 0);
      CHECK((info.st_mode & 07777) == 0700);
      CHECK(made.insert(path).second);
    }
  }

  TEST_CASE("run directory: no run id leaves the log directory") {
    const TempDir dir;
    const LaunchConfig config = with_log_dir(dir.path());
    for (const std::string& id :
         {std::string("../x"), std::string(".."), std::string("/etc"), std::string("a/b\n\xff'"),
          std::string(4000, 'x'), std::string("a\0b", 3), std::string("XXXXXX")}) {
      CAPTURE(id);
      const auto path = make_run_directory(config, id);
      CHECK(path.parent_path() == dir.path());
      CHECK(fs::is_directory(path));
    }
  }

  TEST_CASE("run directory: redirects without log_dir write under TMPDIR") {
    const TempDir dir;
    const ScopedEnv scope(Variables{{"TMPDIR", dir.path().string()}});
    LaunchConfig config = plain();
    config.logs.redirects = {Streams::err};
    const auto path = make_run_directory(config, "id");
    CHECK(path.parent_path() == dir.path());
    CHECK(path.filename().string().starts_with("ddprun_id_"));
  }

  TEST_CASE("run directory: what cannot be made is named") {
    const TempDir dir;
    std::ofstream(dir.path() / "file") << "x";
    const auto below_file = dir.path() / "file/logs";
    CHECK_THROWS_WITH_AS(
        make_run_directory(with_log_dir(below_file), "id"),
        ("[logs] create " + below_file.string() + ": Not a directory; see --log_dir").c_str(),
        UsageError);
    CHECK_THROWS_WITH_AS(make_run_directory(with_log_dir("/proc"), "id"),
                         doctest::Contains("[logs] create /proc/id_"), UsageError);
  }
}
