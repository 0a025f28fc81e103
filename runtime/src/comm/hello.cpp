// SPDX-License-Identifier: MIT
// Ranks introduce themselves; see hello.h.
#include "comm/hello.h"

#include <ddprun/error.h>

#include <array>
#include <bitset>
#include <fstream>
#include <optional>
#include <string_view>

#include <fmt/core.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/env.h"
#include "comm/rank_texts.h"

namespace ddprun {
namespace {

constexpr auto kFields = {&Hello::version,  &Hello::size,    &Hello::backend, &Hello::machine,
                          &Hello::hostname, &Hello::address, &Hello::cores};

std::string this_machine() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat network {};
  ::stat("/proc/self/ns/net", &network);
  return fmt::format("{}/{}/{}", boot, network.st_ino, ::geteuid());
}

std::string this_host() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string allowed_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ::sched_getaffinity(0, sizeof allowed, &allowed);
  std::string digits;
  for (int core = 0; core < CPU_SETSIZE; core += 4) {
    int digit = 0;
    for (int i = 0; i < 4; ++i) digit |= CPU_ISSET(core + i, &allowed) ? 1 << i : 0;
    digits += "0123456789abcdef"[digit];
  }
  return digits.substr(0, digits.find_last_not_of('0') + 1);
}

void require_equal(std::string_view what, int rank, const std::string& theirs,
                   const std::string& first) {
  if (theirs != first)
    throw UsageError(
        fmt::format("[process_group] set-up: rank {} has {} {}, but rank 0 has {}; start all ranks "
                    "with the same one",
                    rank, what, theirs, first));
}

}  // namespace

Hello Hello::of_this_process(int size, std::string backend, std::string address) {
  return {DDPRUN_VERSION, std::to_string(size), std::move(backend), this_machine(),
          this_host(),    std::move(address),   allowed_cores()};
}

std::vector<Hello> exchange_hellos(Store& store, int rank, const Hello& own,
                                   std::chrono::milliseconds timeout, Deadline deadline) {
  const RankTexts texts{"process_group", "rank", timeout};
  const auto text = encode_fields(own, kFields);
  const auto holder = store.compare_set(key_of(texts, rank), "", text);
  if (holder != text)
    throw UsageError(
        fmt::format("[process_group] set-up: rank {} has joined already, on host {}; give every "
                    "process its own RANK, and every group its own prefix of the store",
                    rank, decode_fields<Hello>(holder, kFields).hostname));
  std::vector<Hello> all;
  const auto hello_of = [&](int r, int size) {
    // An older version has fewer fields: it is told apart by the first.
    return decode_fields<Hello>(text_of(texts, store, r, size, deadline), kFields);
  };
  // Everybody compares with rank 0 in rank order, and waits for as many as rank 0 says: so that all
  // ranks name the same one, also when they disagree on the size.
  all.push_back(hello_of(0, static_cast<int>(parse_int(own.size).value_or(1))));
  const Hello first = all[0];
  const int size = static_cast<int>(parse_int(first.size).value_or(1));
  for (int r = 1; r < size; ++r) {
    all.push_back(hello_of(r, size));
    require_equal("version", r, all.back().version, first.version);
    require_equal("world size", r, all.back().size, first.size);
    require_equal("backend", r, all.back().backend, first.backend);
  }
  require_equal("world size", rank, own.size, first.size);  // a rank that rank 0 does not expect
  return all;
}

int count_cores(const std::vector<Hello>& hellos) {
  std::bitset<CPU_SETSIZE> cores;
  for (const Hello& hello : hellos)
    for (std::size_t i = 0; i < hello.cores.size(); ++i) {
      const char digit = hello.cores[i];
      const int bits = digit >= 'a' ? digit - 'a' + 10 : digit - '0';
      for (std::size_t b = 0; b < 4 && i * 4 + b < cores.size(); ++b)
        if ((bits >> b & 1) != 0) cores.set(i * 4 + b);
    }
  return static_cast<int>(cores.count());
}

}  // namespace ddprun
