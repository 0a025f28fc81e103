// SPDX-License-Identifier: MIT
// Loading of CUDA and NCCL, in processes of their own, since each is loaded once in a process.
#include <ddprun/error.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/core.h>

#include "cuda/shared_library.h"
#include "support/program.h"
#include "support/scoped_env.h"
#include "support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

namespace fs = std::filesystem;
using Variables = std::map<std::string, std::optional<std::string>>;

const std::string kStubs = DDPRUN_STUBS;
const std::string kCudart = kStubs + "/cuda/libcudart.so.13";
const std::string kNccl = kStubs + "/nccl-2.28/libnccl.so.2";
const std::string kOldNccl = kStubs + "/nccl-2.10/libnccl.so.2";
const std::string kIncompleteNccl = kStubs + "/nccl-incomplete/libnccl.so.2";

/// A machine with a driver, two GPUs and NCCL 2.28, all stubs.
Variables machine(const Variables& changes = {}) {
  Variables variables = {{"DDPRUN_ALLOW_TEST_DOUBLES", "1"}, {"DDPRUN_CUDART_LIB", kCudart},
                         {"DDPRUN_NCCL_LIB", kNccl},         {"CUDA_VISIBLE_DEVICES", std::nullopt},
                         {"LOCAL_RANK", std::nullopt},       {"LOGLEVEL", std::nullopt}};
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

struct Said {
  std::vector<std::string> lines;
  std::string log;

  std::vector<std::string> all(const std::string& name) const {
    std::vector<std::string> values;
    for (const std::string& line : lines)
      if (line.starts_with(name + "=")) values.push_back(line.substr(name.size() + 1));
    return values;
  }
  std::string first(const std::string& name) const {
    const auto values = all(name);
    return values.empty() ? "nothing about " + name : values.front();
  }
};

Said probe(const std::vector<std::string>& arguments, const Variables& variables,
           const std::string& program = DDPRUN_LOAD_PROBE) {
  const ScopedEnv env(variables);
  std::vector<std::string> argv = {program};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  Program run(argv);
  CHECK(run.wait() == 0);
  return {split_lines(run.out()), run.err()};
}

std::string real(const std::string& path) { return fs::canonical(path).string(); }

/// Where a library is found that anybody can use.
std::string found_path(const LibrarySearch& search) {
  std::string path;
  SharedLibrary::open(search, [&](const SharedLibrary& library) { path = library.path(); });
  return path;
}

std::string why(const Variables& changes, int device = 0, int size = 1) {
  const Said said = probe({"why", std::to_string(device), std::to_string(size)}, machine(changes));
  const auto answers = said.all("why");
  CHECK(answers.size() == 2);
  CHECK(answers.front() == answers.back());
  return answers.front();
}

}  // namespace

TEST_SUITE("cuda") {
  TEST_CASE("NCCL: the override names the one that is loaded, and its version is told") {
    const Said said = probe({"nccl"}, machine());
    CHECK(said.first("version") == "2.28.9");
    CHECK(said.first("path") == real(kNccl));
    CHECK(said.first("loaded_before") == "false");
    CHECK(said.first("test_double") == "true");
    CHECK(said.log.find("TEST DOUBLE in use: " + real(kNccl)) != std::string::npos);
  }

  TEST_CASE("NCCL: one that is too old is called that, with version and path") {
    const Said said = probe({"nccl"}, machine({{"DDPRUN_NCCL_LIB", kOldNccl}}));
    CHECK(said.first("error") ==
          fmt::format("[nccl] loading: found NCCL 2.10.3 at {}, needed 2.18.0 or newer; set "
                      "DDPRUN_NCCL_LIB to a newer libnccl.so.2",
                      real(kOldNccl)));
    CHECK(said.all("same") == std::vector<std::string>(4, "true"));
  }

  TEST_CASE(
      "NCCL: the copy that the program is linked with is used, and said to be the program's") {
    const Said said = probe({"nccl"}, machine({{"DDPRUN_NCCL_LIB", ""}}), DDPRUN_LOAD_PROBE_LINKED);
    CHECK(said.first("error") ==
          fmt::format("[nccl] loading: found NCCL 2.10.3 at {} (loaded already by the program), "
                      "needed 2.18.0 or newer; set DDPRUN_NCCL_LIB to a newer libnccl.so.2",
                      real(kOldNccl)));
  }

  TEST_CASE("NCCL: a second copy beside the program's is warned of") {
    const Said said = probe({"nccl"}, machine(), DDPRUN_LOAD_PROBE_LINKED);
    CHECK(said.first("path") == real(kNccl));
    CHECK(said.first("loaded_before") == "false");
    CHECK(said.log.find("the program has loaded " + real(kOldNccl) + " too") != std::string::npos);
    CHECK(probe({"nccl"}, machine()).log.find(" too;") == std::string::npos);
  }

  TEST_CASE("NCCL: an incomplete one is told by what it lacks") {
    const Said said = probe({"nccl"}, machine({{"DDPRUN_NCCL_LIB", kIncompleteNccl}}));
    CHECK(said.first("error") ==
          fmt::format("[nccl] loading: NCCL 2.28.9 at {} lacks ncclCommInitRankConfig, "
                      "ncclCommFinalize, ncclRedOpCreatePreMulSum, ncclRedOpDestroy; set "
                      "DDPRUN_NCCL_LIB to a complete libnccl.so.2",
                      real(kIncompleteNccl)));
  }

  TEST_CASE("NCCL: of two on the loader's path the first is used, and named") {
    for (const auto& [first, second] :
         {std::pair("nccl-2.28", "nccl-2.10"), std::pair("nccl-2.10", "nccl-2.28")}) {
      const Said said = probe(
          {"nccl"},
          machine({{"DDPRUN_NCCL_LIB", std::nullopt},
                   {"LD_LIBRARY_PATH", fmt::format("{0}/{1}:{0}/{2}", kStubs, first, second)}}));
      const auto told = said.first("path") + said.first("error");
      CHECK(told.find(real(fmt::format("{}/{}/libnccl.so.2", kStubs, first))) != std::string::npos);
    }
  }

  TEST_CASE("NCCL: an override that cannot be loaded is the only candidate") {
    const TempDir dir;
    const std::string text = dir.path() / "libnccl.so.2";
    std::ofstream(text) << "this is no library\n";
    const std::string missing = dir.path() / "none.so";
    for (const auto& [path, reason] :
         {std::pair(text, "file too short"), std::pair(missing, "No such file or directory")}) {
      const auto error =
          probe({"nccl"}, machine({{"DDPRUN_NCCL_LIB", path}, {"LD_LIBRARY_PATH", kStubs}}))
              .first("error");
      CAPTURE(error);
      CHECK(error.starts_with("[nccl] loading: DDPRUN_NCCL_LIB=" + path + " cannot be loaded: "));
      CHECK(error.find(reason) != std::string::npos);
    }
  }

  TEST_CASE("NCCL: a library that is another one is not taken for it") {
    const auto error = probe({"nccl"}, machine({{"DDPRUN_NCCL_LIB", kCudart}})).first("error");
    CHECK(error ==
          fmt::format("[nccl] loading: {} does not tell its version; is it NCCL?", real(kCudart)));
  }

  TEST_CASE("SharedLibrary: a test double is refused where nobody allowed it") {
    for (const char* allowed : {"", "0", "yes"}) {
      const auto error =
          probe({"nccl"}, machine({{"DDPRUN_ALLOW_TEST_DOUBLES", allowed}})).first("error");
      CHECK(error ==
            fmt::format("[nccl] loading: {} is a double for ddprun's tests; take it out of "
                        "DDPRUN_NCCL_LIB and LD_LIBRARY_PATH",
                        real(kNccl)));
    }
  }

  TEST_CASE("SharedLibrary: what is nowhere is told with every candidate") {
    try {
      SharedLibrary::open(
          {"DDPRUN_ABSENT_LIB", {"libddprun_absent.so.2", "libddprun_absent.so.1"}, {}},
          [](const SharedLibrary&) {});
      FAIL("it was found");
    } catch (const DeviceError& error) {
      const std::string text = error.what();
      CAPTURE(text);
      CHECK(text.starts_with("no libddprun_absent.so.2 or libddprun_absent.so.1 can be loaded ("));
      CHECK(count(text, "cannot open shared object file") == 2);
      CHECK(text.ends_with("; install it, or set DDPRUN_ABSENT_LIB to the file"));
    }
  }

  TEST_CASE("SharedLibrary: one that a Python environment brought is found without Python") {
    const TempDir dir;
    const auto lib = dir.path() / "lib/python3.11/site-packages/nvidia/absent/lib";
    fs::create_directories(lib);
    fs::copy_file(kNccl, lib / "libddprun_absent.so.2");
    for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
      const ScopedEnv none(Variables{{"DDPRUN_ALLOW_TEST_DOUBLES", "1"},
                                     {"VIRTUAL_ENV", std::nullopt},
                                     {"CONDA_PREFIX", std::nullopt}});
      const ScopedEnv one(Variables{{variable, dir.path().string()}});
      CHECK(found_path({"DDPRUN_ABSENT_LIB",
                        {"libddprun_absent.so.2"},
                        {"nvidia/absent/lib/libddprun_absent.so.2"}}) ==
            real(lib / "libddprun_absent.so.2"));
    }
  }

  TEST_CASE("SharedLibrary: one beside the python3 on PATH is found without Python") {
    const TempDir dir;
    const auto lib = dir.path() / "lib/python3.12/site-packages/nvidia/beside/lib";
    fs::create_directories(lib);
    fs::create_directories(dir.path() / "bin");
    fs::create_symlink("/bin/true", dir.path() / "bin/python3");
    fs::copy_file(kNccl, lib / "libddprun_beside.so.2");
    const ScopedEnv env(Variables{{"DDPRUN_ALLOW_TEST_DOUBLES", "1"},
                                  {"VIRTUAL_ENV", std::nullopt},
                                  {"CONDA_PREFIX", std::nullopt},
                                  {"PATH", "/nonexistent:" + dir.path().string() + "/bin"}});
    CHECK(found_path({"DDPRUN_ABSENT_LIB",
                      {"libddprun_beside.so.2"},
                      {"nvidia/beside/lib/libddprun_beside.so.2"}}) ==
          real(lib / "libddprun_beside.so.2"));
  }

  TEST_CASE(
      "SharedLibrary: one that is refused leaves the next, and all are told when none is left") {
    const ScopedEnv env(Variables{{"DDPRUN_ALLOW_TEST_DOUBLES", "1"}});
    const LibrarySearch both = {"DDPRUN_ABSENT_LIB", {kNccl, kOldNccl}, {}};
    std::string used;
    SharedLibrary::open(both, [&](const SharedLibrary& library) {
      if (library.path() == real(kNccl)) throw DeviceError("too new");
      used = library.path();
    });
    CHECK(used == real(kOldNccl));
    CHECK_THROWS_WITH_AS(
        SharedLibrary::open(
            both, [](const SharedLibrary& library) { throw DeviceError("no " + library.path()); }),
        ("no " + real(kNccl) + "; no " + real(kOldNccl)).c_str(), DeviceError);
  }

  TEST_CASE("CUDA: a runtime that is too new for the driver leaves the older one beside it") {
    const TempDir dir;
    for (const char* name : {"13", "12"})
      fs::copy_file(kCudart, dir.path() / ("libcudart.so." + std::string(name)));
    const Variables there = {{"DDPRUN_CUDART_LIB", std::nullopt},
                             {"LD_LIBRARY_PATH", dir.path().string()},
                             {"STUB_CUDA_DRIVER", "12080"},
                             {"STUB_CUDA_RUNTIME_OF_12", "12040"}};
    CHECK(why(there).empty());
    const Said said = probe({"cuda"}, machine(there));
    CHECK(said.first("path") == real(dir.path() / "libcudart.so.12"));
  }

  TEST_CASE("CUDA: the runtime is loaded once, by whichever thread comes first") {
    const Said said = probe({"cuda"}, machine());
    CHECK(said.first("path") == real(kCudart));
    CHECK(said.all("same") == std::vector<std::string>(4, "true"));
    CHECK(count(said.log, "TEST DOUBLE") == 1);
  }

  TEST_CASE("CUDA: why not is one line with the versions and the path") {
    CHECK(why({}).empty());
    CHECK(probe({"why", "0", "1"}, machine()).first("count") == "2");
    CHECK(why({{"STUB_CUDA_DRIVER", "0"}}) ==
          fmt::format("no NVIDIA driver (the CUDA runtime 13.0 at {} is there)", real(kCudart)));
    CHECK(why({{"STUB_CUDA_DRIVER", "12080"}}) ==
          fmt::format("the NVIDIA driver supports CUDA 12.8, but the CUDA runtime at {} is 13.0; "
                      "install a newer driver, or set DDPRUN_CUDART_LIB to a libcudart.so.12",
                      real(kCudart)));
    CHECK(why({{"STUB_CUDA_DRIVER", "13000"}, {"STUB_CUDA_RUNTIME", "13010"}}).empty());
    CHECK(why({{"STUB_CUDA_DRIVER", "13000"}, {"STUB_CUDA_RUNTIME", "12040"}}).empty());
    CHECK(why({{"STUB_CUDA_RUNTIME", "11080"}}) ==
          fmt::format("found the CUDA runtime 11.8 at {}, needed 12.0 or newer; set "
                      "DDPRUN_CUDART_LIB to a newer libcudart.so",
                      real(kCudart)));
    CHECK(why({{"DDPRUN_CUDART_LIB", "/no/such.so"}}).find("DDPRUN_CUDART_LIB=/no/such.so") == 0);
    CHECK(why({{"DDPRUN_CUDART_LIB", kNccl}}) ==
          real(kNccl) + " does not tell its version; is it NVIDIA's?");
  }

  TEST_CASE("CUDA: a device that is not there is told as its user asked for it") {
    CHECK(why({{"LOCAL_RANK", "2"}, {"CUDA_VISIBLE_DEVICES", "2,3"}}, 2) ==
          "LOCAL_RANK 2 but 2 visible devices (CUDA_VISIBLE_DEVICES=2,3)");
    CHECK(why({{"LOCAL_RANK", "1"}, {"STUB_CUDA_DEVICES", "1"}}, 1) ==
          "LOCAL_RANK 1 but 1 visible device (CUDA_VISIBLE_DEVICES is not set)");
    CHECK(why({{"LOCAL_RANK", "0"}}, 7) ==
          "device 7 but 2 visible devices (CUDA_VISIBLE_DEVICES is not set)");
    CHECK(why({}, -1) == "device -1 but 2 visible devices (CUDA_VISIBLE_DEVICES is not set)");
    CHECK(why({{"CUDA_VISIBLE_DEVICES", ""}, {"STUB_CUDA_ERROR", "100"}}) ==
          "no visible device (CUDA_VISIBLE_DEVICES=)");
    CHECK(why({{"STUB_CUDA_DEVICES", "0"}}) ==
          "no visible device (CUDA_VISIBLE_DEVICES is not set)");
  }

  TEST_CASE("CUDA: an error of the count is told, not kept, and the count not read") {
    CHECK(why({{"STUB_CUDA_ERROR", "802"}}) ==
          "cudaGetDeviceCount: cudaErrorStub (802): as the stub was told");
    const Said said = probe({"why", "0", "1"}, machine({{"STUB_CUDA_ERROR", "46"}}));
    CHECK(said.first("count") == "0");
    CHECK(said.first("last_error") == "0");  // the program's own calls do not meet it
  }

  TEST_CASE("CUDA: several ranks need NCCL as well, one rank does not") {
    const Variables old = {{"DDPRUN_NCCL_LIB", kOldNccl}};
    CHECK(why(old, 0, 1).empty());
    CHECK(why(old, 0, 2).starts_with("found NCCL 2.10.3 at "));
    CHECK(why({}, 1, 2).empty());
  }

  TEST_CASE("CUDA: a job on CPUs has neither library in memory") {
    const Said said = probe({"group", "cpu", "2"}, machine());
    CHECK(said.all("backend") == std::vector<std::string>(2, "cpu"));
    CHECK(said.all("mapped").empty());
  }

  TEST_CASE("CUDA: without a driver NCCL is not loaded to find that out") {
    const Said said = probe({"group", "auto", "2"}, machine({{"STUB_CUDA_DRIVER", "0"}}));
    CHECK(said.all("backend") == std::vector<std::string>(2, "cpu"));
    CHECK(said.first("mapped").find("libcudart") != std::string::npos);
    for (const std::string& line : said.all("mapped"))
      CHECK(line.find("libnccl") == std::string::npos);
  }

  TEST_CASE("CUDA: with a GPU for each rank, auto and nccl are the same, and cpu stays cpu") {
    const auto full = machine({{"DDPRUN_CUDART_LIB", DDPRUN_DOUBLE_CUDART},
                               {"DDPRUN_NCCL_LIB", DDPRUN_DOUBLE_NCCL},
                               {"FAKE_CUDA_DEVICES", "4"}});
    for (const char* backend : {"auto", "nccl"}) {
      const Said said = probe({"group", backend, "4"}, full);
      CAPTURE(said.log);
      CHECK(said.all("backend") == std::vector<std::string>(4, "nccl"));
      CHECK(said.all("error").empty());
    }
    CHECK(probe({"group", "cpu", "4"}, full).all("backend") == std::vector<std::string>(4, "cpu"));
  }

  TEST_CASE("CUDA: when one rank has no GPU, auto gives all of them the CPU and says it once") {
    const Said said = probe({"group", "auto", "3"}, machine({{"LOCAL_RANK", "2"}}));
    CHECK(said.all("backend") == std::vector<std::string>(3, "cpu"));
    const std::string why_not =
        "backend cpu for all ranks, since rank 2: LOCAL_RANK 2 but 2 visible devices "
        "(CUDA_VISIBLE_DEVICES is not set)";
    CHECK(count(said.log, why_not) == 1);
    CHECK(count(said.log, "warning") - count(said.log, "TEST DOUBLE") == 1);
  }

  TEST_CASE("CUDA: without any GPU, auto gives the CPU without a warning") {
    const Variables none = {{"STUB_CUDA_ERROR", "100"}};
    CHECK(count(probe({"group", "auto", "2"}, machine(none)).log, "backend cpu") == 0);
    auto told = machine(none);
    told["LOGLEVEL"] = "INFO";
    CHECK(count(probe({"group", "auto", "2"}, told).log,
                "backend cpu for all ranks, since rank 0: no visible device "
                "(CUDA_VISIBLE_DEVICES is not set)") == 1);
  }

  TEST_CASE("CUDA: what one rank lacks for nccl is the error of all ranks") {
    CHECK(probe({"group", "nccl", "3"}, machine()).all("error") ==
          std::vector<std::string>(3,
                                   "[process_group] set-up: backend nccl: rank 2: device 2 but 2 "
                                   "visible devices (CUDA_VISIBLE_DEVICES is not set)"));
    const auto old = probe({"group", "nccl", "2"}, machine({{"DDPRUN_NCCL_LIB", kOldNccl}}));
    CHECK(
        old.all("error") ==
        std::vector<std::string>(
            2, fmt::format("[process_group] set-up: backend nccl: rank 0: found NCCL 2.10.3 at {}, "
                           "needed 2.18.0 or newer; set DDPRUN_NCCL_LIB to a newer libnccl.so.2",
                           real(kOldNccl))));
    const auto automatic = probe({"group", "auto", "2"}, machine({{"DDPRUN_NCCL_LIB", kOldNccl}}));
    CHECK(automatic.all("backend") == std::vector<std::string>(2, "cpu"));
    CHECK(count(automatic.log, "since rank 0: found NCCL 2.10.3") == 1);
  }

  TEST_CASE("CUDA: ranks that chose one GPU, or one that is busy, fail alike at the set-up") {
    const auto same = probe({"group", "nccl", "2", "1"}, machine()).all("error");
    REQUIRE(same.size() == 2);
    CHECK(same[0] == same[1]);
    CHECK(same[0].starts_with("[nccl] set-up: ranks 0 and 1 on host "));
    CHECK(
        same[0].ends_with(" both use GPU 0000:02:00.0; set the device to LOCAL_RANK or lower "
                          "--nproc_per_node"));
    const auto busy =
        probe({"group", "auto", "2"}, machine({{"STUB_CUDA_BUSY", "1"}})).all("error");
    REQUIRE(busy.size() == 2);
    CHECK(busy[0] == busy[1]);
    CHECK(busy[0].starts_with("[nccl] set-up: rank 1 on host "));
    CHECK(busy[0].ends_with(": [cuda] cudaSetDevice: cudaErrorStub (46): as the stub was told"));
  }

  TEST_CASE(
      "CUDA: a variable that NCCL would misread stops all ranks, an unknown one is told once") {
    const auto told = [](const char* name, const char* value) {
      return probe({"group", "nccl", "2", "1"}, machine({{name, value}}));
    };
    for (const std::string& error : told("NCCL_IB_DISABLE", "true").all("error"))
      CHECK(
          error.find(": NCCL_IB_DISABLE=true is not a number: NCCL would take it for 0; write 1") !=
          std::string::npos);
    CHECK(count(told("NCCL_IB_DISBALE", "1").log, "is it NCCL_IB_DISABLE?") == 1);
  }
}
