#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The main job, end to end: the same training on 1, 2 and 4 ranks, under ddprun and by hand.

Usage: digits_test.py DDPRUN TRAIN [unittest options]. Python's standard library only; what each rank has to read is
computed here once more, from PyTorch's rules and not with the library's own sampler.
"""
import os
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

DDPRUN, TRAIN = "", ""
TRAINING_SAMPLES, BATCH, EPOCHS = 1408, 64, 20
PARAMETER_BYTES = (128 * 64 + 128 + 10 * 128 + 10) * 8
DEADLINE_S = 120


def parse(output):
    """The lines of a run, without the [rankN]: tags: epochs, ranks and the final line, each as dictionaries."""
    fields = lambda text: dict(re.findall(r"(\w+)=(\S+)", text))
    lines = [re.sub(r"^\[rank\d+\]: ", "", line) for line in output.splitlines()]
    epochs = [fields(line) for line in lines if line.startswith("epoch ")]
    ranks = {int(line.split()[1].rstrip(":")): fields(line) for line in lines if line.startswith("rank ")}
    finals = [fields(line) for line in lines if line.startswith("final: ")]
    return epochs, ranks, finals


def run(command, cwd=None):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "RANK", "WORLD_SIZE"))}
    return subprocess.run(command, cwd=cwd, env=environment, text=True, stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=DEADLINE_S)


def under_ddprun(world, *options):
    return [DDPRUN, "--nproc_per_node", str(world), TRAIN, *options]


class Mt19937:
    """The generator behind torch.randperm."""

    def __init__(self, seed):
        self.state, self.position = [seed & 0xFFFFFFFF], 624
        for i in range(1, 624):
            last = self.state[-1]
            self.state.append((1812433253 * (last ^ (last >> 30)) + i) & 0xFFFFFFFF)

    def next(self):
        if self.position == 624:
            for i in range(624):
                y = (self.state[i] & 0x80000000) | (self.state[(i + 1) % 624] & 0x7FFFFFFF)
                self.state[i] = self.state[(i + 397) % 624] ^ (y >> 1) ^ (0x9908B0DF if y & 1 else 0)
            self.position = 0
        y = self.state[self.position]
        self.position += 1
        y ^= y >> 11
        y ^= (y << 7) & 0x9D2C5680
        y ^= (y << 15) & 0xEFC60000
        return y ^ (y >> 18)


def epoch_order(seed):
    generator, order = Mt19937(seed), list(range(TRAINING_SAMPLES))
    for i in range(TRAINING_SAMPLES - 1):
        k = i + generator.next() % (TRAINING_SAMPLES - i)
        order[i], order[k] = order[k], order[i]
    return order


def indices_hash(rank, world, seed=0, epochs=EPOCHS):
    """FNV-1a over the indices of all epochs that DistributedSampler gives to one rank."""
    value = 0xCBF29CE484222325
    for epoch in range(epochs):
        for index in epoch_order(seed + epoch)[rank::world]:
            for byte in struct.pack("<q", index):
                value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


class Digits(unittest.TestCase):
    def train(self, command, cwd=None):
        result = run(command, cwd)
        self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
        epochs, ranks, finals = parse(result.stdout)
        self.assertEqual(len(finals), 1, result.stdout)
        return epochs, ranks, finals[0]

    def check_run(self, world, epochs, ranks, final, buckets):
        self.assertEqual(len(epochs), EPOCHS)
        self.assertEqual(sorted(ranks), list(range(world)))
        self.assertEqual(final["world"], str(world))
        self.assertGreaterEqual(float(final["accuracy"]), 0.955)
        for rank, line in ranks.items():
            self.assertEqual(line["weights"], final["weights"])
            self.assertEqual(int(line["samples"]), TRAINING_SAMPLES // world)
            self.assertEqual(line["indices"], indices_hash(rank, world))
            steps = EPOCHS * TRAINING_SAMPLES // BATCH
            self.assertEqual(int(line["steps"]), steps)
            self.assertEqual(int(line["bytes_reduced"]), PARAMETER_BYTES * steps)
            self.assertEqual(int(line["buckets"]), buckets)

    def check_same_curve(self, epochs, others):
        for mine, other in zip(epochs, others, strict=True):
            self.assertLess(abs(float(mine["loss"]) - float(other["loss"])), 1e-6)

    def test_ranks_1_2_and_4_train_the_same_model(self):
        for options, buckets in ((), 1), (("--bucket_bytes", "4096"), 9):
            runs = {world: self.train(under_ddprun(world, *options)) for world in (1, 2, 4)}
            for world, (epochs, ranks, final) in runs.items():
                with self.subTest(world=world, options=options):
                    self.check_run(world, epochs, ranks, final, buckets)
                    self.check_same_curve(epochs, runs[1][0])

    def test_by_hand_and_from_another_directory_the_numbers_are_those_of_ddprun(self):
        launched, launched_ranks, launched_final = self.train(under_ddprun(4))
        with tempfile.TemporaryDirectory() as elsewhere:
            by_hand, ranks, final = self.train([TRAIN, "--nprocs", "4"], cwd=elsewhere)
        self.assertEqual([e["loss"] for e in by_hand], [e["loss"] for e in launched])
        self.assertEqual(ranks, launched_ranks)
        self.assertEqual(final["weights"], launched_final["weights"])

    def test_accuracy_is_reached_for_seeds_0_to_4(self):
        for seed in range(5):
            with self.subTest(seed=seed):
                _, _, final = self.train(under_ddprun(4, "--seed", str(seed)))
                self.assertGreaterEqual(float(final["accuracy"]), 0.955)

    def test_nobody_finishes_a_step_while_one_rank_is_stopped(self):
        # One batch is the whole training set: every line of rank 0 is one step.
        command = under_ddprun(4, "--batch_size", str(TRAINING_SAMPLES), "--epochs", "1000000")
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.DEVNULL) as job:
            try:
                self.watch_while_stopped(job)
            finally:
                job.send_signal(signal.SIGTERM)
                job.stdout.close()
                job.wait(DEADLINE_S)

    def watch_while_stopped(self, job):
        os.set_blocking(job.stdout.fileno(), False)

        def steps_within(seconds, enough=None):
            """Lines of finished steps that arrive until the time is over or there are enough."""
            steps, end = 0, time.monotonic() + seconds
            while time.monotonic() < end and (enough is None or steps < enough):
                if not select.select([job.stdout], [], [], max(0, end - time.monotonic()))[0]:
                    break
                steps += os.read(job.stdout.fileno(), 1 << 16).count(b"epoch ")
            return steps

        self.assertGreaterEqual(steps_within(DEADLINE_S, enough=10), 10)
        rank_2 = worker_pid(job.pid, 2)
        os.kill(rank_2, signal.SIGSTOP)
        try:
            steps_within(1)  # what was on its way
            self.assertEqual(steps_within(3), 0)
        finally:
            os.kill(rank_2, signal.SIGCONT)
        self.assertGreaterEqual(steps_within(DEADLINE_S, enough=10), 10)

    def test_bad_input_is_one_clear_line(self):
        cases = (
            (under_ddprun(3), "a global batch of 64 cannot be split evenly between 3 rank(s)"),
            (under_ddprun(4, "--batch_size", "2"), "a global batch of 2 cannot be split evenly between 4 rank(s)"),
            ([TRAIN, "--data", "/no/such/file"], "/no/such/file: cannot be opened"),
            ([TRAIN, "--data", "/dev/null"], "/dev/null: has only 0 samples"),
        )
        for command, text in cases:
            with self.subTest(text=text):
                result = run(command)
                self.assertEqual(result.returncode, 1)
                self.assertIn(text, result.stderr)
        for wrong in (["--epochs", "0"], ["--no_such_option"], ["--nprocs", "x"]):
            with self.subTest(wrong=wrong):
                result = run([TRAIN, *wrong])
                self.assertEqual(result.returncode, 2)
                self.assertIn(wrong[0], result.stderr)


def worker_pid(launcher, rank):
    """The descendant of the launcher whose environment says RANK=rank."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/environ", "rb") as f:
                variables = f.read().split(b"\0")
            with open(f"/proc/{entry}/stat") as f:
                parent = int(f.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        if parent == launcher and f"RANK={rank}".encode() in variables:
            return int(entry)
    raise AssertionError(f"no child of {launcher} is rank {rank}")


if __name__ == "__main__":
    DDPRUN, TRAIN = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
