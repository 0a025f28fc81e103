#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs a driver against a store server and judges its lines.

    run_store_driver.py SERVER SKIPPED DRIVER [ARGUMENT]...

SERVER is the program store_server; DRIVER gets host and port before its other arguments and prints
a line 'PASS|FAIL|SKIP ... name (seconds)' a case. Passes when the driver does, no case failed, at
least one passed, and the cases skipped are exactly SKIPPED (names with commas between; 'any' asks
nothing). A python3 that lacks torch ends a driver with ModuleNotFoundError: exit status 77.
"""
import re
import subprocess
import sys


def main():
    server_program, expected, driver, *arguments = sys.argv[1:]
    server = subprocess.Popen([server_program, "0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True)
    try:
        word, host, port = server.stdout.readline().split()
        assert word == "SERVING", word
        run = subprocess.run([*driver.split(), host, port, *arguments], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)
        alive = server.poll() is None
    finally:
        server.stdin.close()
        status = server.wait(timeout=20)
    print(run.stdout)
    if "ModuleNotFoundError: No module named 'torch'" in run.stdout:
        return 77
    names = {"PASS": set(), "FAIL": set(), "SKIP": set()}
    for verdict, name in re.findall(r"^(PASS|FAIL|SKIP) (?:\w+ +)?(\w+) \(", run.stdout, re.M):
        names[verdict].add(name)
    faults = []
    if run.returncode != 0 or names["FAIL"] or not names["PASS"]:
        faults.append("the driver ended with %d, failed: %s" % (run.returncode, names["FAIL"]))
    if expected != "any" and names["SKIP"] != set(expected.split(",")):
        faults.append("skipped cases differ: %s" % sorted(names["SKIP"] ^ set(expected.split(","))))
    if not alive or status != 0:
        faults.append("the server ended with %s" % status)
    for fault in faults:
        print("run_store_driver:", fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
