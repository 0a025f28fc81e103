#!/usr/bin/env python3
"""How long does it take to start and end N copies of /bin/true: ddprun, the floor (fork_wait.c), and mpirun where it is
installed; each in turn, A B C A B C, medians of the whole process, and ddprun's peak memory.
usage: start_bench.py DDPRUN [RANKS] [ROUNDS]"""
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ddprun = sys.argv[1]
ranks = sys.argv[2] if len(sys.argv) > 2 else "2"
rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 31


def once(command):
    start = time.perf_counter()
    pid = os.posix_spawnp(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
    _, status = os.waitpid(pid, 0)
    if status != 0:
        sys.exit(f"{command}: status {status}")
    return (time.perf_counter() - start) * 1e3


with tempfile.TemporaryDirectory() as scratch:
    floor = f"{scratch}/fork_wait"
    subprocess.run(["cc", "-O2", "-o", floor, str(pathlib.Path(__file__).with_name("fork_wait.c"))], check=True)
    commands = {"ddprun": [ddprun, "--nproc_per_node", ranks, "/bin/true"], "floor": [floor, ranks]}
    if shutil.which("mpirun"):
        commands["mpirun"] = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", ranks, "/bin/true"]
    taken = {name: [] for name in commands}
    for turn in range(rounds + 1):
        for name, command in commands.items():
            sample = once(command)
            if turn:
                taken[name].append(sample)
    ours = statistics.median(taken["ddprun"])
    for name, samples in taken.items():
        median = statistics.median(samples)
        print(f"{name:7} ranks={ranks} median={median:.2f} ms (min {min(samples):.2f})  ddprun/{name}={ours / median:.2f}")
    peak = subprocess.run([floor, "peak", *commands["ddprun"]], stdout=subprocess.PIPE, check=True, text=True).stdout
    print(f"ddprun peak memory {int(peak) / 1024:.1f} MiB")
