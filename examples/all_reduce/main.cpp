// SPDX-License-Identifier: MIT
// Every rank brings two numbers; afterwards all of them have the sums.
#include <ddprun/ddprun.h>
#include <ddprun/spawn.h>

#include <cstdio>
#include <vector>

static int run(const ddprun::WorkerEnv& env) {
  auto group = ddprun::init_process_group(env);
  std::vector<float> numbers = {1.0F, static_cast<float>(group.rank())};
  group.all_reduce(ddprun::view(numbers), ddprun::ReduceOp::sum);
  std::printf("rank %d of %d: %g %g\n", group.rank(), group.size(), numbers[0], numbers[1]);
  return 0;
}

int main() {
  if (auto env = ddprun::WorkerEnv::from_environment())
    return ddprun::record(run, *env);  // started by ddprun: RANK and WORLD_SIZE are set
  return ddprun::spawn(run, 4);        // started by hand
}
