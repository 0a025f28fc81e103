// SPDX-License-Identifier: MIT
// Time of all_reduce (f32, sum, in place), printed as nccl-tests does. Every repetition is a
// barrier and one timed call; a rank's time is its median, the line shows the largest over ranks.
// Usage: all_reduce_bench [--ranks N] [BYTES...]    without --ranks: under ddprun, one rank of it
#include <ddprun/process_group.h>
#include <ddprun/tcp_store.h>
#include <ddprun/worker_env.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string_view>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "net/socket.h"
#include "store/tcp_store_server.h"

using namespace ddprun;

namespace {

double median_us(ProcessGroup& group, TensorView buffer) {
  using Clock = std::chrono::steady_clock;
  const auto repetitions = std::clamp<std::size_t>(200'000'000 / buffer.bytes(), 5, 200);
  std::vector<double> times;
  for (std::size_t i = 0; i < repetitions + 3; ++i) {
    group.barrier();
    const auto start = Clock::now();
    group.all_reduce(buffer);
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  times.erase(times.begin(), times.begin() + 3);  // warm-up
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                   times.end());
  double median = times[times.size() / 2];
  group.all_reduce(view(std::span(&median, 1)), ReduceOp::max);
  return median;
}

void measure(ProcessGroup& group, const std::vector<std::size_t>& sizes) {
  const bool prints = group.rank() == 0;
  const double factor = 2.0 * (group.size() - 1) / group.size();  // bytes a wire would carry
  if (prints)
    std::printf("# %d ranks\n#      bytes    memory       us  algbw GB/s  busbw GB/s\n",
                group.size());
  for (const std::size_t bytes : sizes) {
    const auto shared = group.allocate(bytes);
    std::vector<float> ordinary(bytes / sizeof(float), 1.0f);
    auto* const allocated = reinterpret_cast<float*>(shared.get());
    std::fill(allocated, allocated + ordinary.size(), 1.0f);
    for (const bool use_shared : {true, false}) {
      const TensorView buffer{
          use_shared ? allocated : ordinary.data(), ordinary.size(), DType::f32, {}};
      const double us = median_us(group, buffer);
      const double algbw = static_cast<double>(bytes) / us / 1e3;
      if (prints)
        std::printf("%12zu %9s %8.2f %11.3f %11.3f\n", bytes, use_shared ? "allocate" : "malloc",
                    us, algbw, algbw * factor);
    }
    std::fflush(stdout);
  }
}

int run_rank(const std::vector<std::size_t>& sizes, const auto& make_group) try {
  ProcessGroup group = make_group();
  measure(group, sizes);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

int fork_ranks(int ranks, const std::vector<std::size_t>& sizes) {
  UniqueFd listener = listen_tcp("127.0.0.1", 0);
  const auto port = local_port(listener.get());
  for (int rank = 0; rank < ranks; ++rank) {
    if (::fork() != 0) continue;
    const int code = run_rank(sizes, [&] {
      auto store = connect_tcp_store({.host = "127.0.0.1", .port = port},
                                     Deadline::after(std::chrono::seconds(30)));
      return ProcessGroup(std::move(store), rank, ranks);
    });
    std::fflush(stdout);
    ::_exit(code);
  }
  const TcpStoreServer server(std::move(listener));
  int worst = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    int status = 0;
    ::wait(&status);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::size_t> sizes;
  int ranks = 0;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--ranks" && i + 1 < argc)
      ranks = std::atoi(argv[++i]);
    else
      sizes.push_back(std::strtoull(argv[i], nullptr, 10));
  }
  if (sizes.empty()) sizes = {8, 4096, 65536, 1u << 20, 25u << 20, 256u << 20};
  if (ranks > 0) return fork_ranks(ranks, sizes);
  const auto env = WorkerEnv::from_environment().value_or(WorkerEnv{});
  return run_rank(sizes, [&] { return init_process_group(env); });
}
