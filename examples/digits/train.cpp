// SPDX-License-Identifier: MIT
// Trains a small network on handwritten digits, data-parallel.
//   ./train                                  one rank
//   ./train --nprocs 4                       four ranks of this machine
//   ddprun --nproc_per_node 4 ./train        the same, under the launcher
#include <ddprun/ddprun.h>

#include <chrono>
#include <cstdint>
#include <span>

#include <cblas.h>

#include "digits.h"
#include "mlp.h"
#include "options.h"
#include "report.h"

namespace {

using Clock = std::chrono::steady_clock;

class Trainer {
 public:
  Trainer(const digits::Options& options, ddprun::ProcessGroup& group)
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
    totals_.samples_per_epoch = sampler_.indices().size();
    totals_.buckets = ddp_.bucket_count();
    totals_.indices.add(std::as_bytes(sampler_.indices()));
    return group_.mean(loss / static_cast<double>(batches.size()));
  }

  double test_accuracy() { return model_.accuracy(data_.test.pixels, data_.test.labels); }
  const digits::Totals& totals() const { return totals_; }
  digits::Hash weights() {
    digits::Hash hash;
    for (const ddprun::Parameter& p : model_.parameters())
      hash.add({static_cast<const std::byte*>(p.value.data), p.value.bytes()});
    return hash;
  }

 private:
  ddprun::ProcessGroup& group_;
  std::size_t batch_size_;
  digits::Data data_;
  digits::Mlp model_;
  ddprun::DistributedDataParallel ddp_;
  ddprun::Sgd sgd_;
  ddprun::DistributedSampler sampler_;
  digits::Totals totals_;
};

int train(const digits::Options& options, const ddprun::WorkerEnv& env) {
  openblas_set_num_threads(1);  // one core a rank; products this small are slower on several
  auto group = ddprun::init_process_group(env, {.backend = "cpu"});  // no tensor is on a GPU
  Trainer trainer(options, group);
  digits::Report report(group, options);
  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    const double seconds_before = trainer.totals().seconds;
    const double loss = trainer.train_epoch(epoch);
    if (group.rank() == 0)
      report.print_epoch(epoch, loss, trainer.test_accuracy(),
                         trainer.totals().seconds - seconds_before);
  }
  report.print_end(trainer.totals(), trainer.weights());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  digits::Options options;
  CLI::App app("Trains a small network on handwritten digits, data-parallel.", "train");
  digits::add_options(app, options);
  return digits::run(app, argc, argv, options,
                     [&](const ddprun::WorkerEnv& env) { return train(options, env); });
}
