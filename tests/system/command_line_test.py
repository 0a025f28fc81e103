#!/usr/bin/env python3
"""ddprun as a user types it: bad input is one line and the right exit code, nothing is left behind, and no library but libc
is loaded (each costs start-up time in every run).
usage: command_line_test.py DDPRUN [--sanitized]"""
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

DDPRUN = pathlib.Path(sys.argv[1]).resolve()
SANITIZED = "--sanitized" in sys.argv
failures = []


def ddprun(*words, cwd=None, stdout=subprocess.PIPE, **variables):
    return subprocess.run([DDPRUN, *words], cwd=cwd, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=30,
                          env={**os.environ, **variables})


def expect(what, holds):
    if not holds:
        failures.append(what)


def refuses(words, code, text, **variables):
    with tempfile.TemporaryDirectory() as empty:
        result = ddprun(*words, cwd=empty, **variables)
        seen = f"{words}: exit code {result.returncode}, stdout {result.stdout!r}, stderr {result.stderr!r}"
        expect(f"exit code {code}: {seen}", result.returncode == code)
        expect(f"one line with {text!r}: {seen}", text in result.stderr and result.stderr.count("\n") == 1)
        expect(f"no stdout: {seen}", result.stdout == "")
        expect(f"{words} left {os.listdir(empty)}", not os.listdir(empty))


refuses(["--nproc", "2", "true"], 2, "did you mean --nproc_per_node?")
refuses(["--nproc_per_node=", "true"], 2, "--nproc_per_node= has an empty value")
refuses(["--nproc_per_node", "0", "true"], 2, "--nproc_per_node 0")
refuses([], 2, "no program given")
refuses(["true"], 2, "PET_NPROC_PER_NODE=x", PET_NPROC_PER_NODE="x")
for devices in "", "-1", "none":
    refuses(["--nproc_per_node=gpu", "true"], 2, f"no GPU is visible, or none is there (CUDA_VISIBLE_DEVICES={devices})",
            CUDA_VISIBLE_DEVICES=devices)
refuses(["--log_dir", "/dev/null", "true"], 2, "--log_dir /dev/null")
refuses(["--master_addr", "203.0.113.7", "true"], 2, "203.0.113.7")
refuses(["--nproc_per_node=2", "./no_such_program"], 127, "./no_such_program")
refuses(["--nproc_per_node=2", "/etc/passwd"], 126, "/etc/passwd")
with socket.socket() as taken:
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    port = str(taken.getsockname()[1])
    refuses(["--master_port", port, "true"], 75, f"127.0.0.1:{port}")

with tempfile.TemporaryDirectory() as empty:
    plan = ddprun("--dry_run", "--nproc_per_node=2", "--log_dir=logs", "--redirects=3", "./train", "a b", cwd=empty)
    expect(f"dry run: {plan}", plan.returncode == 0 and plan.stdout.count("\n./train 'a b'\n") == 2 and plan.stderr == "")
    expect(f"dry run made {os.listdir(empty)}", not os.listdir(empty))
for word in ("--help", "--version"):
    result = ddprun(word)
    expect(f"{word}: {result}", result.returncode == 0 and "ddprun" in result.stdout and result.stderr == "")
with open("/dev/full", "w") as full:
    result = ddprun("--help", stdout=full)
    expect(f"--help to a full disk: {result}", result.returncode == 75 and "cannot write" in result.stderr)

if not SANITIZED:
    headers = subprocess.run(["readelf", "-d", DDPRUN], stdout=subprocess.PIPE, text=True, check=True).stdout
    needed = {line.split("[")[1].rstrip("]") for line in headers.splitlines() if "(NEEDED)" in line}
    expect(f"loads only libc: {needed}", needed <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"})

print("\n".join(failures) or "the command line holds")
sys.exit(1 if failures else 0)
