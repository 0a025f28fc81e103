/* SPDX-License-Identifier: MIT
 * The floor of a launcher: start N copies of /bin/true and wait for them, nothing else. usage: fork_wait N */
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>

extern char** environ;

int main(int argc, char** argv) {
  const int n = argc > 1 ? atoi(argv[1]) : 2;
  char* words[] = {"true", 0};
  for (int i = 0; i < n; i++) {
    pid_t pid;
    if (posix_spawn(&pid, "/bin/true", 0, 0, words, environ) != 0) return 1;
  }
  for (int i = 0; i < n; i++) wait(0);
  return 0;
}
