// SPDX-License-Identifier: MIT
// Two ranks of the product on one GPU, which NCCL takes for two hosts: steps of
// DistributedDataParallel, an abort, and a rank that is killed. pair.sh starts both.
#include <ddprun/cuda.h>
#include <ddprun/ddp.h>
#include <ddprun/process_group.h>
#include <ddprun/tcp_store.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "gpu/check.h"
#include "net/socket.h"
#include "store/tcp_store_server.h"
#include "support/device_array.h"

using namespace ddprun;
using namespace ddprun::gpu_check;
using test::DeviceArray;
using test::OwnStream;

namespace {

using Seconds = std::chrono::seconds;
using Milliseconds = std::chrono::duration<double, std::milli>;

constexpr std::size_t kNumel = 70'001;  // a parameter: more than a bucket
constexpr Seconds kTimeout(20);

/// The first rank serves the store; the other finds its port in a file. Throws: TimeoutError.
class Pair {
 public:
  Pair(int rank, const std::filesystem::path& file) {
    if (rank == 0) {
      server_.emplace(listen_tcp("127.0.0.1", 0));
      const auto unfinished = file.string() + ".new";
      std::ofstream(unfinished) << server_->port();
      std::filesystem::rename(unfinished, file);
    } else {
      wait_until([&] { return std::filesystem::exists(file); }, Seconds(10), "the store");
    }
    TcpStoreOptions options;
    std::ifstream(file) >> options.port;
    group_.emplace(connect_tcp_store(options, Deadline::after(Seconds(10))), rank, 2,
                   ProcessGroupOptions{.backend = "nccl", .timeout = kTimeout, .device = 0});
  }
  ProcessGroup& group() { return *group_; }

 private:
  std::optional<TcpStoreServer> server_;
  std::optional<ProcessGroup> group_;
};

std::size_t count_wrong(const DeviceArray<float>& array, float expected) {
  std::size_t wrong = 0;
  for (const float value : array.read()) wrong += value == expected ? 0 : 1;
  return wrong;
}

/// The gradient of rank r in step s is r + s everywhere, so the mean over both is s + 0.5.
void train(Report& report, ProcessGroup& group, const OwnStream& stream) {
  constexpr int kSteps = 10;
  const std::vector<float> zeros(kNumel);
  const DeviceArray<float> values[] = {{stream, zeros}, {stream, zeros}};
  std::vector<Parameter> parameters;
  for (const auto& value : values)
    parameters.push_back({fmt::format("p{}", parameters.size()),
                          {static_cast<std::int64_t>(kNumel)},
                          value.view(),
                          {}});
  DistributedDataParallel ddp(
      group, parameters,
      {.bucket_bytes = 1 << 18, .first_bucket_bytes = 1 << 18, .stream = stream});
  const auto start = Deadline::Clock::now();
  std::size_t wrong = 0;
  for (int step = 0; step < kSteps; ++step) {
    const DeviceArray<float> gradient(
        stream, std::vector<float>(kNumel, static_cast<float>(group.rank() + step)));
    for (const std::size_t i : {1u, 0u}) {
      cuda::cast(ddp.gradient(i), gradient.view(), 1, stream);
      ddp.mark_ready(i, stream);
    }
    ddp.synchronize(stream);
    const DeviceArray<float> mean(stream, zeros);
    for (const std::size_t i : {1u, 0u}) {
      cuda::cast(mean.view(), ddp.gradient(i), 1, stream);
      wrong += count_wrong(mean, static_cast<float>(step) + 0.5f);
    }
  }
  const Milliseconds took = Deadline::Clock::now() - start;
  report.check(wrong == 0, fmt::format("rank {}: {} gradients are not the mean over both ranks",
                                       group.rank(), wrong));
  report.note(fmt::format("{} buckets, {:.1f} ms a step with its checks", ddp.bucket_count(),
                          took.count() / kSteps));
}

/// Tells the other rank, through a file, that an operation is under way which waits for it.
std::string under_way(const char* file) { return std::string(file) + ".under_way"; }

/// An operation that cannot succeed ends with RemoteError, and early.
void expect_failure(Report& report, ProcessGroup& group, const char* file, const char* what) {
  const OwnStream stream;
  const DeviceArray<float> array(stream, std::vector<float>(kNumel, 1.0f));
  std::string text = "no error";
  bool remote = false;
  const auto start = Deadline::Clock::now();
  try {
    const Work work = group.all_reduce(array.view(), ReduceOp::sum, stream, true);
    work.wait_on(stream);
    std::ofstream(under_way(file)).flush();
    work.wait(Deadline::after(2 * kTimeout));
  } catch (const RemoteError& error) {
    remote = true;
    text = error.what();
  } catch (const Error& error) {
    text = error.what();
  }
  const Milliseconds took = Deadline::Clock::now() - start;
  report.check(remote, fmt::format("{}: {}", what, text));
  report.check(took < kTimeout, fmt::format("{} is known after {:.0f} ms", what, took.count()));
  stream.wait(Deadline::after(Seconds(10)));
  report.check(true, "the stream runs to its end");
  report.figure(fmt::format("{} is known after {:.0f} ms", what, took.count()));
}

void wait_for_other(const char* file) {
  wait_until([&] { return std::filesystem::exists(under_way(file)); }, Seconds(10),
             "the other rank's operation");
}

void steps(Report& report, int rank, const char* file) {
  Pair pair(rank, file);
  const OwnStream stream;
  train(report, pair.group(), stream);
  pair.group().barrier();
  report.figure("steps of two ranks on one GPU");
}

void abort(Report& report, int rank, const char* file) {
  Pair pair(rank, file);
  pair.group().barrier();
  if (rank == 0) return expect_failure(report, pair.group(), file, "the abort of rank 1");
  wait_for_other(file);
  pair.group().abort("as the check wants it");
  report.figure("rank 1 aborted");
}

void killed(Report& report, int rank, const char* file) {
  Pair pair(rank, file);
  pair.group().barrier();
  if (rank == 0) return expect_failure(report, pair.group(), file, "the death of rank 1");
  wait_for_other(file);
  std::raise(SIGKILL);
}

}  // namespace

int main(int argc, char** argv) {
  const int rank = argc > 2 ? std::atoi(argv[2]) : 0;
  const char* const file = argc > 3 ? argv[3] : "";
  return run_mode(argc, argv,
                  {{"steps", [&](Report& r) { steps(r, rank, file); }},
                   {"abort", [&](Report& r) { abort(r, rank, file); }},
                   {"killed", [&](Report& r) { killed(r, rank, file); }}});
}
