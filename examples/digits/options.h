// SPDX-License-Identifier: MIT
// What the digits job can be told, and how its ranks are started: the same for every version of it.
#pragma once

#include <ddprun/ddp.h>
#include <ddprun/record.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>

namespace digits {

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

void add_options(CLI::App& app, Options& options);

/// Parses the command line, then runs `train`: as the rank that a launcher has made of this
/// process, else as options.nprocs ranks. Returns the program's exit code; 2 for wrong words.
int run(CLI::App& app, int argc, char** argv, const Options& options, const ddprun::TrainFn& train);

}  // namespace digits
