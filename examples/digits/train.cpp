// SPDX-License-Identifier: MIT
// Trains a small network on handwritten digits, data-parallel.
//   ./train                                  one rank
//   ./train --nprocs 4                       four ranks of this machine
//   ddprun --nproc_per_node 4 ./train        the same, under the launcher
#include <ddprun/ddprun.h>
#include <ddprun/spawn.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <string>

#include <CLI/CLI.hpp>
#include <cblas.h>
#include <unistd.h>

#include "digits.h"
#include "mlp.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  int epochs = 20;
  std::size_t batch_size = 64;
  double lr = 0.1;
  std::size_t hidden = 128;
  std::uint32_t seed = 0;
  std::size_t bucket_bytes = ddprun::DdpOptions{}.bucket_bytes;
  int nprocs = 1;
  std::string data = DIGITS_DATA;
  bool quiet = false;
};

// FNV-1a, 64 bits: what ranks and runs are compared by.
class Hash {
 public:
  void add(std::span<const std::byte> bytes) {
    for (const std::byte b : bytes)
      value_ = (value_ ^ std::to_integer<std::uint64_t>(b)) * 0x100000001b3;
  }
  unsigned long long value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Hash hash_of(std::span<const ddprun::Parameter> parameters) {
  Hash hash;
  for (const ddprun::Parameter& p : parameters)
    hash.add({static_cast<const std::byte*>(p.value.data), p.value.bytes()});
  return hash;
}

void show_progress(int epoch, const Options& options) {
  constexpr int kWidth = 40;
  const int filled = kWidth * epoch / options.epochs;
  std::fprintf(stderr, "\r[%-*.*s] epoch %d of %d%s", kWidth, filled,
               "########################################", epoch, options.epochs,
               epoch == options.epochs ? "\n" : "");
}

// What one rank has done.
struct Progress {
  int steps = 0;
  std::int64_t bytes_reduced = 0;  // by DistributedDataParallel
  Hash indices;                    // of all epochs
  double seconds = 0;              // in the training loop
};

/// Returns this rank's mean loss.
double train_epoch(digits::Mlp& model, const digits::Samples& samples,
                   const ddprun::DistributedSampler& sampler, std::size_t batch_size,
                   ddprun::DistributedDataParallel& ddp, ddprun::Sgd& sgd) {
  const auto batches = sampler.batches(batch_size);
  double loss = 0;
  for (const auto indices : batches) {
    const digits::Samples batch = samples.gather(indices);
    loss += model.backward(batch.pixels, batch.labels, [&](std::size_t i) { ddp.mark_ready(i); });
    ddp.synchronize();
    sgd.step();
  }
  return loss / static_cast<double>(batches.size());
}

int train(const Options& options, const ddprun::WorkerEnv& env) {
  openblas_set_num_threads(1);  // one core a rank; products this small are slower on several
  auto group = ddprun::init_process_group(env);
  const bool first = group.rank() == 0;
  const std::size_t batch_size = ddprun::per_rank_batch(options.batch_size, group);
  const digits::Data data = digits::load(options.data);
  digits::Mlp model(digits::kPixels, options.hidden, digits::kClasses, options.seed);
  ddprun::DistributedDataParallel ddp(group, model.parameters(),
                                      {.bucket_bytes = options.bucket_bytes});
  ddprun::Sgd sgd(model.parameters(), {.lr = options.lr, .momentum = 0.9});
  ddprun::DistributedSampler sampler(data.training.size(), group, {.seed = options.seed});

  Progress done;
  double loss = 0;
  double accuracy = 0;
  const auto samples_per_s = [&](int epochs, double seconds) {
    return static_cast<double>(epochs) * static_cast<double>(data.training.size()) / seconds;
  };
  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    sampler.set_epoch(epoch);
    done.indices.add(std::as_bytes(sampler.indices()));
    const auto start = Clock::now();
    const std::int64_t bytes_before = group.stats().all_reduce.bytes;
    loss = train_epoch(model, data.training, sampler, batch_size, ddp, sgd);
    done.bytes_reduced += group.stats().all_reduce.bytes - bytes_before;
    done.steps += static_cast<int>(sampler.batches(batch_size).size());
    const double seconds = seconds_since(start);
    done.seconds += seconds;
    loss = group.mean(loss);
    if (!first) continue;
    accuracy = model.accuracy(data.test.pixels, data.test.labels);
    std::printf("epoch %d: loss=%.9f accuracy=%.4f samples_per_s=%.0f\n", epoch, loss, accuracy,
                samples_per_s(1, seconds));
    std::fflush(stdout);
    if (!options.quiet && isatty(STDERR_FILENO) != 0) show_progress(epoch + 1, options);
  }
  const unsigned long long weights = hash_of(model.parameters()).value();
  std::printf(
      "rank %d: samples=%zu indices=%016llx steps=%d bytes_reduced=%lld buckets=%zu "
      "weights=%016llx\n",
      group.rank(), sampler.indices().size(), done.indices.value(), done.steps,
      static_cast<long long>(done.bytes_reduced), ddp.bucket_count(), weights);
  std::fflush(stdout);
  group.barrier();  // the line that sums up comes last
  if (first)
    std::printf("final: world=%d loss=%.9f accuracy=%.4f samples_per_s=%.0f weights=%016llx\n",
                group.size(), loss, accuracy, samples_per_s(options.epochs, done.seconds), weights);
  return 0;
}

void add_options(CLI::App& app, Options& options) {
  app.add_option("--epochs", options.epochs)->check(CLI::PositiveNumber);
  app.add_option("--batch_size", options.batch_size, "Of all ranks together")
      ->check(CLI::PositiveNumber);
  app.add_option("--lr", options.lr, "Learning rate")->check(CLI::PositiveNumber);
  app.add_option("--hidden", options.hidden, "Units of the hidden layer")
      ->check(CLI::PositiveNumber);
  app.add_option("--seed", options.seed, "Of the weights and of the order of samples");
  app.add_option("--bucket_bytes", options.bucket_bytes, "Limit of a bucket of gradients")
      ->check(CLI::PositiveNumber);
  app.add_option("--nprocs", options.nprocs, "Ranks, when started by hand")
      ->check(CLI::PositiveNumber);
  app.add_option("--data", options.data, "The digits (.csv or .csv.gz)");
  app.add_flag("--quiet", options.quiet, "No progress bar");
  app.option_defaults()->always_capture_default();
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Trains a small network on handwritten digits, data-parallel.", "train");
  add_options(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  const auto train_rank = [&](const ddprun::WorkerEnv& env) { return train(options, env); };
  if (auto env = ddprun::WorkerEnv::from_environment()) return ddprun::record(train_rank, *env);
  if (options.nprocs == 1) return ddprun::record(train_rank, {});
  return ddprun::spawn(train_rank, options.nprocs);
} catch (const std::exception& e) {
  std::fprintf(stderr, "train: %s\n", e.what());
  return 2;
}
