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
#include <cstdlib>
#include <exception>
#include <span>
#include <string>
#include <string_view>

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

Hash hash_of(std::span<const ddprun::Parameter> parameters) {
  Hash hash;
  for (const ddprun::Parameter& p : parameters)
    hash.add({static_cast<const std::byte*>(p.value.data), p.value.bytes()});
  return hash;
}

// On stderr, below the lines on stdout, when somebody watches a terminal.
class ProgressBar {
 public:
  explicit ProgressBar(bool wanted) : shown_(wanted && isatty(STDERR_FILENO) != 0) {}
  void draw(int done, int all) const {
    constexpr std::string_view kFull = "########################################";
    const int filled = static_cast<int>(kFull.size()) * done / all;
    if (shown_)
      std::fprintf(stderr, "\r[%-*.*s] epoch %d of %d", static_cast<int>(kFull.size()), filled,
                   kFull.data(), done, all);
  }
  void erase() const {
    if (shown_) std::fputs("\r\033[K", stderr);
  }

 private:
  bool shown_;
};

// What this rank has done in all epochs so far.
struct Totals {
  Hash indices;
  std::size_t steps = 0;
  std::int64_t bytes_reduced = 0;  // by DistributedDataParallel
  double seconds = 0;              // in the training loop
};

class Trainer {
 public:
  Trainer(const Options& options, ddprun::ProcessGroup& group)
      : group_(group),
        batch_size_(ddprun::per_rank_batch(options.batch_size, group)),
        data_(digits::load(options.data)),
        model_(digits::kPixels, options.hidden, digits::kClasses, options.seed),
        ddp_(group, model_.parameters(), {.bucket_bytes = options.bucket_bytes}),
        sgd_(model_.parameters(), {.lr = options.lr, .momentum = 0.9}),
        sampler_(data_.training.size(), group, {.seed = options.seed}) {}

  /// Returns the mean loss over all ranks.
  double train_epoch(int epoch) {
    sampler_.set_epoch(epoch);
    const auto batches = sampler_.batches(batch_size_);
    const std::int64_t bytes_before = group_.stats().all_reduce.bytes;
    const auto start = Clock::now();
    double loss = 0;
    for (const auto indices : batches) {
      const digits::Samples batch = data_.training.gather(indices);
      loss +=
          model_.backward(batch.pixels, batch.labels, [&](std::size_t i) { ddp_.mark_ready(i); });
      ddp_.synchronize();
      sgd_.step();
    }
    totals_.seconds += std::chrono::duration<double>(Clock::now() - start).count();
    totals_.bytes_reduced += group_.stats().all_reduce.bytes - bytes_before;
    totals_.steps += batches.size();
    totals_.indices.add(std::as_bytes(sampler_.indices()));
    return group_.mean(loss / static_cast<double>(batches.size()));
  }

  double test_accuracy() { return model_.accuracy(data_.test.pixels, data_.test.labels); }
  double samples_per_epoch() const { return static_cast<double>(data_.training.size()); }
  double seconds() const { return totals_.seconds; }
  unsigned long long weights_hash() { return hash_of(model_.parameters()).value(); }

  /// For comparison between ranks and runs.
  void print_totals() {
    std::printf(
        "rank %d: samples=%zu indices=%016llx steps=%zu bytes_reduced=%lld buckets=%zu "
        "weights=%016llx\n",
        group_.rank(), sampler_.indices().size(), totals_.indices.value(), totals_.steps,
        static_cast<long long>(totals_.bytes_reduced), ddp_.bucket_count(), weights_hash());
    std::fflush(stdout);
  }

 private:
  ddprun::ProcessGroup& group_;
  std::size_t batch_size_;
  digits::Data data_;
  digits::Mlp model_;
  ddprun::DistributedDataParallel ddp_;
  ddprun::Sgd sgd_;
  ddprun::DistributedSampler sampler_;
  Totals totals_;
};

int train(const Options& options, const ddprun::WorkerEnv& env) {
  openblas_set_num_threads(1);  // one core a rank; products this small are slower on several
  auto group = ddprun::init_process_group(env);
  Trainer trainer(options, group);
  const bool first = group.rank() == 0;
  const ProgressBar bar(first && !options.quiet);
  double loss = 0;
  double accuracy = 0;
  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    const double seconds_before = trainer.seconds();
    loss = trainer.train_epoch(epoch);
    if (!first) continue;
    accuracy = trainer.test_accuracy();
    bar.erase();
    std::printf("epoch %d: loss=%.9f accuracy=%.4f samples_per_s=%.0f\n", epoch, loss, accuracy,
                trainer.samples_per_epoch() / (trainer.seconds() - seconds_before));
    std::fflush(stdout);
    bar.draw(epoch + 1, options.epochs);
  }
  bar.erase();
  trainer.print_totals();
  group.barrier();  // the line that sums up comes last
  if (first)
    std::printf("final: world=%d loss=%.9f accuracy=%.4f samples_per_s=%.0f weights=%016llx\n",
                group.size(), loss, accuracy,
                trainer.samples_per_epoch() * options.epochs / trainer.seconds(),
                trainer.weights_hash());
  return 0;
}

void add_options(CLI::App& app, Options& options) {
  const CLI::Validator positive(
      [](const std::string& text) {
        return std::strtod(text.c_str(), nullptr) > 0 ? "" : "'" + text + "' is not more than 0";
      },
      "POSITIVE");
  app.option_defaults()->always_capture_default();
  app.add_option("--epochs", options.epochs)->check(positive);
  app.add_option("--batch_size", options.batch_size, "Of all ranks together")->check(positive);
  app.add_option("--lr", options.lr, "Learning rate")->check(positive);
  app.add_option("--hidden", options.hidden, "Units of the hidden layer")->check(positive);
  app.add_option("--seed", options.seed, "Of the weights and of the order of samples");
  app.add_option("--bucket_bytes", options.bucket_bytes, "Limit of a bucket of gradients")
      ->check(positive);
  app.add_option("--nprocs", options.nprocs, "Ranks, when started by hand")->check(positive);
  app.add_option("--data", options.data, "The digits (.csv or .csv.gz)");
  app.add_flag("--quiet", options.quiet, "No progress bar");
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Trains a small network on handwritten digits, data-parallel.", "train");
  add_options(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help
    throw;
  }
  const auto train_rank = [&](const ddprun::WorkerEnv& env) { return train(options, env); };
  if (auto env = ddprun::WorkerEnv::from_environment()) return ddprun::record(train_rank, *env);
  if (options.nprocs == 1) return ddprun::record(train_rank, {});
  return ddprun::spawn(train_rank, options.nprocs);
} catch (const std::exception& e) {
  std::fprintf(stderr, "train: %s\n", e.what());
  return 2;
}
