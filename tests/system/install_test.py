#!/usr/bin/env python3
"""Installs the build into a temporary prefix, builds the README's program against it as an outside project, and runs it
by hand and under the installed ddprun.
With DOUBLES, also a program with CUDA code, over the test doubles in that folder.
usage: install_test.py BUILD_DIR SOURCE_DIR [DOUBLES]"""
import os
import pathlib
import subprocess
import sys
import tempfile

build, source = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
doubles = sys.argv[3] if len(sys.argv) > 3 else None


def run(*command, **kw):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, **kw)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def expect_sums(what, output, ranks):
    """Every rank prints the number of ranks and the sum of their numbers."""
    want = f": {ranks} {sum(range(ranks))}"
    lines = [line for line in output.splitlines() if line.endswith(want)]
    if len(lines) != ranks:
        sys.exit(f"{what}: expected {ranks} lines that end in '{want}', got:\n{output}")


with tempfile.TemporaryDirectory(prefix="ddprun-install-") as scratch:
    scratch = pathlib.Path(scratch)
    prefix, project = scratch / "prefix", scratch / "project"
    run("cmake", "--install", build, "--prefix", prefix)
    project.mkdir()
    for name in ("CMakeLists.txt", "launch.cpp"):
        (project / name).write_text((source / "tests/outside_project" / name).read_text())
    (project / "main.cpp").write_text((source / "examples/all_reduce/main.cpp").read_text())
    for name in ("flat_bf16.cu", "flat_bf16_kernel.cuh"):
        (project / name).write_text((source / "tests/programs" / name).read_text())
    env = {k: v for k, v in os.environ.items() if not k.startswith(("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_"))}
    run("cmake", "-S", project, "-B", project / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Release",
        f"-DWITH_CUDA={'ON' if doubles else 'OFF'}", env=env)
    run("cmake", "--build", project / "build", env=env)
    worker = project / "build/all_reduce"
    expect_sums("by hand (spawn)", run(worker, env=env, cwd=scratch), 4)
    expect_sums("under ddprun", run(prefix / "bin/ddprun", "--nproc_per_node", 3, worker, env=env, cwd="/"), 3)
    expect_sums("under a launcher of its own", run(project / "build/launch", "--nproc_per_node", 2, worker, env=env, cwd="/"), 2)
    if doubles:
        on_doubles = env | {"DDPRUN_ALLOW_TEST_DOUBLES": "1", "LD_LIBRARY_PATH": f"{doubles}/cuda",
                            "DDPRUN_NCCL_LIB": f"{doubles}/nccl-2.28/libnccl.so.2"}
        output = run(prefix / "bin/ddprun", "--nproc_per_node", 2, project / "build/flat_bf16", env=on_doubles, cwd="/")
        if output.count("of 2: OK") != 2:
            sys.exit(f"with CUDA: expected two ranks that are OK, got:\n{output}")
    leftover = [p for p in prefix.rglob("*") if p.is_file() and str(source).encode() in p.read_bytes() and p.suffix in {".cmake", ".h"}]
    if leftover:
        sys.exit(f"installed files name the source tree: {leftover}")
print("installed, found, built and run outside the tree")
