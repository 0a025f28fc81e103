// SPDX-License-Identifier: MIT
// The command line of the digits job; see options.h.
#include "options.h"

#include <ddprun/spawn.h>
#include <ddprun/worker_env.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

namespace digits {

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

int run(CLI::App& app, int argc, char** argv, const Options& options,
        const ddprun::TrainFn& train) try {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help
    throw;
  }
  if (auto env = ddprun::WorkerEnv::from_environment()) return ddprun::record(train, *env);
  if (options.nprocs == 1) return ddprun::record(train, {});
  return ddprun::spawn(train, options.nprocs);
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), e.what());
  return 2;
}

}  // namespace digits
