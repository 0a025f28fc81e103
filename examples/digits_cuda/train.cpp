// SPDX-License-Identifier: MIT
// The digits job on GPUs, one per rank, written as for any program with its own CUDA code.
//   ./train_cuda                                 one rank
//   ./train_cuda --nprocs 4                      four ranks of this machine
//   ddprun --nproc_per_node gpu ./train_cuda     a rank on every GPU, under the launcher
// --amp bf16 rounds the inputs of matrix products; --dtype f64 is for comparison with ./train.
#include <ddprun/cuda.h>
#include <ddprun/ddprun.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

#include "digits/digits.h"
#include "digits/options.h"
#include "digits/report.h"
#include "gpu_mlp.h"
#include "samples.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kExitNoGpu = 2;

struct CudaOptions : digits::Options {
  std::string dtype = "f32";
  std::string amp = "off";
};

template <class T, class In>
class Trainer {
 public:
  Trainer(const CudaOptions& options, ddprun::ProcessGroup& group)
      : Trainer(options, group, digits::load(options.data)) {}

  /// Returns the mean loss over all ranks. Within a step the host only launches.
  double train_epoch(int epoch) {
    sampler_.set_epoch(epoch);
    const std::int64_t bytes_before = group_.stats().all_reduce.bytes;
    const auto start = Clock::now();
    loader_.set_indices(sampler_.indices());
    const auto batches = sampler_.batches(batch_size_);
    std::size_t begin = 0;
    for (const auto indices : batches) {
      model_.backward(loader_.load(begin, indices.size()),
                      [&](std::size_t i) { ddp_.mark_ready(i, stream()); });
      ddp_.synchronize(stream());
      sgd_.step(stream());
      begin += indices.size();
    }
    const double loss = model_.take_loss_sum();  // waits for the epoch
    totals_.seconds += std::chrono::duration<double>(Clock::now() - start).count();
    totals_.bytes_reduced += group_.stats().all_reduce.bytes - bytes_before;
    totals_.steps += batches.size();
    totals_.samples_per_epoch = sampler_.indices().size();
    totals_.buckets = ddp_.bucket_count();
    totals_.indices.add(std::as_bytes(sampler_.indices()));
    return group_.mean(loss / static_cast<double>(batches.size()));
  }

  double test_accuracy() { return model_.accuracy(test_.all()); }
  const digits::Totals& totals() const { return totals_; }
  digits::Hash weights() {
    digits::Hash hash;
    hash.add(std::as_bytes(std::span<const T>(model_.values())));
    return hash;
  }

 private:
  Trainer(const CudaOptions& options, ddprun::ProcessGroup& group, const digits::Data& data)
      : group_(group),
        batch_size_(ddprun::per_rank_batch(options.batch_size, group)),
        sampler_(data.training.size(), group, {.seed = options.seed}),
        loader_(data.training, sampler_.indices().size(), batch_size_, stream_.get()),
        test_(data.test, stream_.get()),
        model_({digits::kPixels, static_cast<int>(options.hidden), digits::kClasses,
                static_cast<int>(std::max(batch_size_, data.test.size()))},
               options.seed, group.device(), stream_.get()),
        ddp_(group, model_.parameters(),
             {.bucket_bytes = options.bucket_bytes, .stream = stream()}),
        sgd_(model_.parameters(), {.lr = options.lr, .momentum = 0.9}) {}

  ddprun::Stream stream() const { return {stream_.get()}; }

  ddprun::ProcessGroup& group_;
  std::size_t batch_size_;
  digits::OwnedStream stream_;
  ddprun::DistributedSampler sampler_;
  digits::BatchLoader<In> loader_;
  digits::DeviceSamples<In> test_;
  digits::GpuMlp<T, In> model_;
  ddprun::DistributedDataParallel ddp_;
  ddprun::Sgd sgd_;
  digits::Totals totals_;
};

template <class T, class In>
int train(const CudaOptions& options, const ddprun::WorkerEnv& env) {
  // In a rank and not before: what has called CUDA cannot be forked.
  if (const std::string why = ddprun::cuda::why_unavailable(env.local_rank); !why.empty()) {
    std::fprintf(stderr, "train_cuda: rank %d cannot use a GPU: %s\n", env.rank, why.c_str());
    return kExitNoGpu;
  }
  auto group = ddprun::init_process_group(env, {.backend = "nccl"});
  Trainer<T, In> trainer(options, group);
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

int train_as(const CudaOptions& options, const ddprun::WorkerEnv& env) {
  if (options.amp == "bf16") return train<float, __nv_bfloat16>(options, env);
  if (options.dtype == "f64") return train<double, double>(options, env);
  return train<float, float>(options, env);
}

}  // namespace

int main(int argc, char** argv) {
  CudaOptions options;
  CLI::App app("Trains a small network on handwritten digits, data-parallel, on GPUs.",
               "train_cuda");
  digits::add_options(app, options);
  auto* const dtype = app.add_option("--dtype", options.dtype, "Of parameters and gradients")
                          ->check(CLI::IsMember({"f32", "f64"}));
  app.add_option("--amp", options.amp, "Input of matrix products: as --dtype, or rounded to bf16")
      ->check(CLI::IsMember({"off", "bf16"}))
      ->excludes(dtype);
  return digits::run(app, argc, argv, options,
                     [&](const ddprun::WorkerEnv& env) { return train_as(options, env); });
}
