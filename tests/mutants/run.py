#!/usr/bin/env python3
"""Proves that the tests can fail: applies each one-line fault of this folder to a copy of the tree, builds, and expects the
named test to turn red. A patch begins with
    # target: TARGET       what to build
    # test: REGEX          the ctest names that must fail, all of them
    # preset: tsan         (optional) under ThreadSanitizer, which sees an order that is missing
usage: run.py [NAME ...]"""
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COPY = ROOT / "build/mutants/src"
BUILDS = {"release": ["-DCMAKE_BUILD_TYPE=Release"], "tsan": ["-DCMAKE_BUILD_TYPE=Debug", "-DDDPRUN_SANITIZE=thread"]}


def run(*command, check=True):
    done = subprocess.run([str(c) for c in command], cwd=COPY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900)
    if check and done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout[-3000:]}")
    return done


def tests(build, regex):
    done = run("ctest", "--test-dir", build, "-R", regex, "--timeout", "60", "-j", "2", check=False)
    return set(re.findall(r"Test +#\d+: (.*?) \.* *Passed", done.stdout)), set(re.findall(r"Test +#\d+: (.*?) \.*\**(?:Failed|Exception|Timeout)", done.stdout))


def main():
    patches = sorted(HERE.glob("*.patch"))
    if len(sys.argv) > 1:
        patches = [p for p in patches if p.stem in sys.argv[1:]]
    if not patches:
        sys.exit("no such mutant")
    shutil.rmtree(COPY, ignore_errors=True)
    COPY.mkdir(parents=True)
    for name in subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], stdout=subprocess.PIPE, check=True, text=True).stdout.split("\0"):
        if name and (ROOT / name).exists():
            (COPY / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, COPY / name)
    survived, configured = [], set()
    for number, patch in enumerate(patches, 1):
        text = patch.read_text()
        targets, regex = re.search(r"^# target: (.+)$", text, re.M)[1].split(), re.search(r"^# test: (.+)$", text, re.M)[1]
        preset = re.search(r"^# preset: (\w+)$|\Z", text, re.M)[1] or "release"
        build = ROOT / "build/mutants" / preset
        if preset not in configured:
            run("cmake", "-S", COPY, "-B", build, "-G", "Ninja", *BUILDS[preset], f"-DCMAKE_RUNTIME_OUTPUT_DIRECTORY={build}/bin")
            configured.add(preset)
        run("cmake", "--build", build, "--target", *targets)
        green, red = tests(build, regex)
        if not green or red:
            sys.exit(f"{patch.stem}: before the fault, of '{regex}' passed {sorted(green)} and failed {sorted(red)}")
        run("patch", "-p1", "-i", patch)
        try:
            run("cmake", "--build", build, "--target", *targets)
            still_green, red = tests(build, regex)
        finally:
            run("patch", "-p1", "-R", "-i", patch)
        ok = bool(red) and not still_green
        print(f"[{number}/{len(patches)}] {'killed  ' if ok else 'SURVIVED'} {patch.stem}", flush=True)
        if not ok:
            survived.append(f"{patch.stem}: still green: {sorted(still_green)}")
    print(f"{len(patches) - len(survived)} passed, {len(survived)} failed")
    sys.exit("\n".join(survived) or 0)


main()
