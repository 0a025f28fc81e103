// SPDX-License-Identifier: MIT
// A launcher of one's own: ddprun's command line in a program that links the launcher alone.
#include <ddprun/launch.h>

int main(int argc, char** argv) {
  const std::span<const char* const> words(argv + 1, static_cast<std::size_t>(argc - 1));
  return ddprun::run(ddprun::parse_command_line(words).config).exit_code;
}
