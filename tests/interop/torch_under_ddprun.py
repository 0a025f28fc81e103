#!/usr/bin/env python3
"""Runs an unmodified PyTorch script under ddprun with 2 and 4 ranks, the store hosted by ddprun.
usage: torch_under_ddprun.py DDPRUN PYTHON"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ddprun, python = sys.argv[1:3]
script = pathlib.Path(__file__).with_name("torch_ddp_train.py")
for ranks in (2, 4):
    with tempfile.TemporaryDirectory(prefix="ddprun-torch-") as logs:
        done = subprocess.run([ddprun, "--nproc_per_node", str(ranks), "--log_dir", logs, str(script)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=150, env={**os.environ, "PYTHON_EXEC": python})
        said = re.findall(rf"^\[rank(\d+)\]: torch rank (\d+) of {ranks}: loss", done.stdout, re.M)
        if done.returncode != 0 or sorted(said) != [(str(r), str(r)) for r in range(ranks)]:
            sys.exit(f"{ranks} ranks: exit {done.returncode}, {said}\n{done.stdout[-4000:]}")
        written = sorted(p.parent.name for p in pathlib.Path(logs).rglob("stdout.log") if "torch rank" in p.read_text())
        if written != [str(r) for r in range(ranks)]:
            sys.exit(f"{ranks} ranks: log files of {written}")
        print(f"{ranks} ranks trained")
