/* SPDX-License-Identifier: MIT
 * fork_wait N            the floor of a launcher: start N copies of /bin/true and wait for them, nothing else
 * fork_wait peak CMD...  run one command, print its peak memory in KiB (a large process that starts a command lends it its
 *                        own peak, so this small one does it) */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

extern char** environ;

int main(int argc, char** argv) {
  const int measure = argc > 2 && strcmp(argv[1], "peak") == 0;
  const int n = measure ? 1 : argc > 1 ? atoi(argv[1]) : 2;
  char* words[] = {"/bin/true", 0};
  char** command = measure ? argv + 2 : words;
  struct rusage usage;
  int status = 0;
  for (int i = 0; i < n; i++) {
    pid_t pid;
    if (posix_spawnp(&pid, command[0], 0, 0, command, environ) != 0) return 1;
  }
  for (int i = 0; i < n; i++) wait4(-1, &status, 0, &usage);
  if (measure) printf("%ld\n", usage.ru_maxrss);
  return status != 0;
}
