// SPDX-License-Identifier: MIT
// worker_spec: what every rank executes, where its output goes, and its environment, byte for byte.
#include "worker_spec.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <unistd.h>

#include "machine.h"
#include "support/scoped_env.h"

using namespace ddprun;
using ddprun::test::ScopedEnv;
using Variables = std::map<std::string, std::optional<std::string>>;
using Words = std::vector<std::string>;

namespace {

LaunchConfig config_for(Words command, int nproc) {
  LaunchConfig config;
  config.program.command = std::move(command);
  config.nodes.nproc_per_node = nproc;
  return config;
}

Round round_for(const LaunchConfig& config) {
  Round round;
  round.world_size = config.nodes.nproc_per_node;
  round.run_id = "run";
  round.master_addr = "127.0.0.1";
  round.master_port = 4711;
  return round;
}

std::vector<WorkerSpec> specs_for(const LaunchConfig& config, const char* run_dir = "") {
  return make_worker_specs(config, round_for(config), 0, run_dir);
}

/// "inherit", or f(ile), c(onsole), t(ag).
std::string text_of(const StreamPlan& plan) {
  std::string text = plan.inherit ? "inherit" : "";
  if (plan.file) text += 'f';
  if (plan.console) text += 'c';
  if (plan.tag) text += 't';
  return text;
}

/// The process environment for the length of a test, exactly these entries.
class ScopedEnviron {
 public:
  explicit ScopedEnviron(Words entries) : entries_(std::move(entries)) {
    for (std::string& entry : entries_) pointers_.push_back(entry.data());
    pointers_.push_back(nullptr);
    environ = pointers_.data();
  }
  ScopedEnviron(const ScopedEnviron&) = delete;
  ScopedEnviron& operator=(const ScopedEnviron&) = delete;
  ~ScopedEnviron() { environ = old_; }

 private:
  char** old_ = environ;
  Words entries_;
  std::vector<char*> pointers_;
};

std::map<std::string, std::string> as_map(const Words& environment) {
  std::map<std::string, std::string> map;
  for (const std::string& entry : environment) {
    const auto equals = entry.find('=');
    if (equals == std::string::npos) continue;
    CHECK(map.emplace(entry.substr(0, equals), entry.substr(equals + 1)).second);
  }
  return map;
}

}  // namespace

TEST_SUITE("launcher") {
  TEST_CASE("worker spec: what is executed") {
    const ScopedEnv scope(Variables{{"PYTHON_EXEC", std::nullopt}});
    struct Case {
      Words command;
      bool module;
      bool no_python;
      Words argv;
    };
    for (const Case& c : {
             Case{{"./train", "a b", "", "$$", "${local_rank}"},
                  false,
                  false,
                  {"./train", "a b", "", "$$", "${local_rank}"}},
             Case{{"train.py", "--x"}, false, false, {"python3", "-u", "train.py", "--x"}},
             Case{{"pkg.train", "--x"}, true, false, {"python3", "-u", "-m", "pkg.train", "--x"}},
             Case{{"train.py"}, false, true, {"train.py"}},
             Case{{"train.pyc"}, false, false, {"train.pyc"}},
             Case{{"./W", "x.py"}, false, false, {"./W", "x.py"}},
         }) {
      LaunchConfig config = config_for(c.command, 2);
      config.program.module = c.module;
      config.program.no_python = c.no_python;
      for (const WorkerSpec& spec : specs_for(config)) CHECK(spec.argv == c.argv);
    }
    const ScopedEnv python(Variables{{"PYTHON_EXEC", "/opt/py/bin/python"}});
    CHECK(specs_for(config_for({"t.py"}, 1)).front().argv ==
          Words{"/opt/py/bin/python", "-u", "t.py"});
  }

  TEST_CASE("worker spec: every rank knows who it is") {
    LaunchConfig config = config_for({"W"}, 3);
    config.nodes.role = "trainer";
    config.stop.max_restarts = 5;
    Round round = round_for(config);
    round.node_rank = 1;
    round.node_count = 2;
    round.first_rank = 2;
    round.world_size = 5;
    const auto specs = make_worker_specs(config, round, 2, "/logs/run_ab");
    REQUIRE(specs.size() == 3);
    for (int local_rank = 0; local_rank < 3; ++local_rank) {
      const WorkerSpec& spec = specs[static_cast<std::size_t>(local_rank)];
      const std::map<std::string, std::string> variables = [&] {
        const auto pairs = spec.env.variables();
        return std::map<std::string, std::string>(pairs.begin(), pairs.end());
      }();
      const std::string rank = std::to_string(local_rank + 2);
      CHECK(variables ==
            std::map<std::string, std::string>{
                {"RANK", rank},
                {"LOCAL_RANK", std::to_string(local_rank)},
                {"WORLD_SIZE", "5"},
                {"LOCAL_WORLD_SIZE", "3"},
                {"GROUP_RANK", "1"},
                {"GROUP_WORLD_SIZE", "2"},
                {"ROLE_RANK", rank},
                {"ROLE_WORLD_SIZE", "5"},
                {"ROLE_NAME", "trainer"},
                {"MASTER_ADDR", "127.0.0.1"},
                {"MASTER_PORT", "4711"},
                {"TORCHELASTIC_RESTART_COUNT", "2"},
                {"TORCHELASTIC_MAX_RESTARTS", "5"},
                {"TORCHELASTIC_RUN_ID", "run"},
                {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                {"TORCHELASTIC_ERROR_FILE", "/logs/run_ab/attempt_2/" + rank + "/error.json"}});
      CHECK(spec.log_dir == "/logs/run_ab/attempt_2/" + rank);
    }
    CHECK(specs_for(config).front().log_dir.empty());
    CHECK(specs_for(config).front().env.error_file.empty());
  }

  TEST_CASE("worker spec: where the streams go") {
    using enum Streams;
    struct Case {
      int nproc;
      bool files;
      std::vector<Streams> redirects;
      std::vector<Streams> tee;
      const char* out;  // of local rank 0
      const char* err;
    };
    for (const Case& c : {
             Case{1, false, {}, {}, "inherit", "inherit"},
             Case{1, true, {}, {}, "fc", "fc"},
             Case{1, true, {both}, {err}, "f", "fc"},
             Case{2, false, {}, {}, "ct", "ct"},
             Case{2, false, {}, {both, both}, "ct", "ct"},
             Case{2, true, {}, {}, "fct", "fct"},
             Case{2, true, {out, none}, {}, "f", "fct"},
             Case{2, true, {err, none}, {}, "fct", "f"},
             Case{2, true, {both, none}, {}, "f", "f"},
             Case{2, true, {both, both}, {both, none}, "fct", "fct"},
             Case{2, true, {both, both}, {out, none}, "fct", "f"},
             Case{2, true, {none, both}, {}, "fct", "fct"},
         }) {
      CAPTURE(c.nproc);
      CAPTURE(c.files);
      LaunchConfig config = config_for({"W"}, c.nproc);
      config.logs.redirects = c.redirects;
      config.logs.tee = c.tee;
      const WorkerSpec spec = specs_for(config, c.files ? "/logs/run_ab" : "").front();
      CHECK(text_of(spec.out) == c.out);
      CHECK(text_of(spec.err) == c.err);
    }
  }

  TEST_CASE("worker environment: the launcher's own bytes, then each documented variable once") {
    const Words foreign = {"A=x y",
                           "B=l1\nl2",
                           "C=$(id) `id` \"q\"",
                           "D=",
                           "BASH_FUNC_f%%=() {  echo hi\n}",
                           "no_equals_sign",
                           "RANK",
                           "",
                           "=odd",
                           "E=1",
                           "E=2",
                           "F=\xff\xfe%s",
                           "BIG=" + std::string(100 * 1024, 'b'),
                           "RANKS=7",
                           "TORCHELASTIC_RUN_ID_X=keep",
                           "MASTER_PORT2=keep"};
    Words entries = foreign;
    for (const char* stale : {"RANK=99", "MASTER_PORT=1", "MASTER_PORT=2", "DDPRUN_JOB=old",
                              "TORCHELASTIC_ERROR_FILE=/stale", "OMP_NUM_THREADS=3"})
      entries.insert(entries.begin() + 3, stale);
    const ScopedEnviron scope(entries);
    WorkerEnv env;
    env.rank = 1;
    env.local_world_size = 2;
    env.role = "a b\nc";
    const Words environment = worker_environment(env, "token");
    REQUIRE(environment.size() >= foreign.size());
    const auto split = environment.begin() + static_cast<std::ptrdiff_t>(foreign.size());
    CHECK(Words(environment.begin(), split) == foreign);
    const auto ours = as_map(Words(split, environment.end()));
    auto expected = env.variables();
    expected.emplace_back("DDPRUN_JOB", "token");
    expected.emplace_back("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
    expected.emplace_back("OMP_NUM_THREADS", "3");
    CHECK(ours == std::map<std::string, std::string>(expected.begin(), expected.end()));
  }

  TEST_CASE("worker environment: OMP_NUM_THREADS is the user's, else a share of the CPUs") {
    const auto threads = [](Words entries, int nproc) -> std::string {
      const ScopedEnviron scope(std::move(entries));
      WorkerEnv env;
      env.local_world_size = nproc;
      const auto map = as_map(worker_environment(env, "token"));
      return map.contains("OMP_NUM_THREADS") ? map.at("OMP_NUM_THREADS") : "not set";
    };
    CHECK(threads({}, 1) == "not set");
    CHECK(threads({"OMP_NUM_THREADS=7"}, 1) == "7");
    CHECK(threads({"OMP_NUM_THREADS=7"}, 4) == "7");
    CHECK(threads({"OMP_NUM_THREADS="}, 4) == "");
    CHECK(threads({}, 2) == std::to_string(std::max(1, usable_cpus() / 2)));
    CHECK(threads({}, 4096) == "1");
  }

  TEST_CASE("worker environment: NCCL's error handling is inherited, else on") {
    const auto handling = [](Words entries) {
      const ScopedEnviron scope(std::move(entries));
      return as_map(worker_environment({}, "token")).at("TORCH_NCCL_ASYNC_ERROR_HANDLING");
    };
    CHECK(handling({}) == "1");
    CHECK(handling({"TORCH_NCCL_ASYNC_ERROR_HANDLING=0"}) == "0");
  }
}
