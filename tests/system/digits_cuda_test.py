#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The GPU version of the main job, over test doubles: its numbers are those of the CPU version.

Usage: digits_cuda_test.py DDPRUN TRAIN TRAIN_CUDA DOUBLES [--sanitized] [unittest options]
"""
import os
import re
import subprocess
import sys
import unittest

DDPRUN, TRAIN, TRAIN_CUDA, DOUBLES, SANITIZED = "", "", "", "", False
DEADLINE_S = 120
PARAMETERS = 128 * 64 + 128 + 10 * 128 + 10
STEPS_PER_EPOCH = 22


def fields(text):
    return dict(re.findall(r"(\w+)=(\S+)", text))


def environment(doubles=True, nccl="2.28", **variables):
    result = {k: v for k, v in os.environ.items()
              if not k.startswith(("PET_", "RANK", "WORLD_SIZE", "DDPRUN_", "FAKE_", "CUDA_VISIBLE", "NCCL_"))}
    if doubles:
        result.update(LD_LIBRARY_PATH=f"{DOUBLES}/cuda",
                      DDPRUN_NCCL_LIB=f"{DOUBLES}/nccl-{nccl}/libnccl.so.2",
                      DDPRUN_ALLOW_TEST_DOUBLES="1", FAKE_CUDA_DEVICES="8", FAKE_CUDA_STRICT_NULL="1")
    return result | variables


def under_ddprun(world, program, *options):
    return [DDPRUN, "--nproc_per_node", str(world), program, *options]


class DigitsOnGpus(unittest.TestCase):
    def finish(self, command, env):
        return subprocess.run(command, env=env, text=True, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=DEADLINE_S)

    def train(self, command, env=None):
        """What a run printed: losses by epoch, fields by rank, the fields of the final line."""
        result = self.finish(command, env or environment())
        self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
        self.assertNotIn("Sanitizer", result.stderr)
        lines = [re.sub(r"^\[rank\d+\]: ", "", line) for line in result.stdout.splitlines()]
        losses = [float(fields(line)["loss"]) for line in lines if line.startswith("epoch ")]
        ranks = {int(line.split()[1].rstrip(":")): fields(line) for line in lines if line.startswith("rank ")}
        finals = [fields(line) for line in lines if line.startswith("final: ")]
        self.assertEqual(len(finals), 1, result.stdout)
        return losses, ranks, finals[0]

    def check_ranks(self, world, ranks, final, epochs, element_bytes, buckets=1):
        self.assertEqual(sorted(ranks), list(range(world)))
        for line in ranks.values():
            self.assertEqual(line["weights"], final["weights"])
            self.assertEqual(int(line["buckets"]), buckets)
            self.assertEqual(int(line["bytes_reduced"]), PARAMETERS * element_bytes * STEPS_PER_EPOCH * epochs)

    def check_losses(self, losses, expected, tolerance):
        self.assertEqual(len(losses), len(expected))
        for mine, other in zip(losses, expected):
            self.assertLessEqual(abs(mine - other), tolerance * other + 0.6e-9, f"{losses}\n{expected}")

    def test_in_f64_1_2_4_and_8_ranks_have_the_losses_and_samples_of_the_cpu_version(self):
        epochs = 1 if SANITIZED else 3
        expected, cpu_ranks, _ = self.train([TRAIN, "--epochs", str(epochs)], environment(doubles=False))
        for world in (1, 2, 4, 8):
            with self.subTest(world=world):
                losses, ranks, final = self.train(
                    under_ddprun(world, TRAIN_CUDA, "--dtype", "f64", "--epochs", str(epochs)))
                self.check_losses(losses, expected, 1e-9)
                self.check_ranks(world, ranks, final, epochs, element_bytes=8)
                if world == 1:
                    self.assertEqual(ranks[0]["indices"], cpu_ranks[0]["indices"])

    def test_many_buckets_have_the_losses_of_one_with_either_nccl(self):
        command = ("--dtype", "f64", "--epochs", "1")
        expected, _, _ = self.train([TRAIN, "--epochs", "1"], environment(doubles=False))
        for nccl in ("2.18", "2.28"):
            with self.subTest(nccl=nccl):
                losses, ranks, final = self.train(
                    under_ddprun(2, TRAIN_CUDA, *command, "--bucket_bytes", "4096"), environment(nccl=nccl))
                self.check_losses(losses, expected, 1e-9)
                self.check_ranks(2, ranks, final, epochs=1, element_bytes=8, buckets=9)

    def test_in_f32_the_losses_are_close(self):
        expected, _, _ = self.train([TRAIN, "--epochs", "2"], environment(doubles=False))
        losses, ranks, final = self.train(under_ddprun(2, TRAIN_CUDA, "--epochs", "2"))
        self.check_losses(losses, expected, 1e-3)
        self.check_ranks(2, ranks, final, epochs=2, element_bytes=4)

    def test_by_hand_the_numbers_are_those_of_ddprun(self):
        if SANITIZED:
            self.skipTest("takes long")
        launched = self.train(under_ddprun(2, TRAIN_CUDA, "--epochs", "2"))
        by_hand = self.train([TRAIN_CUDA, "--nprocs", "2", "--epochs", "2"])
        self.assertEqual(by_hand[:2], launched[:2])

    def test_a_delay_before_each_piece_of_work_changes_nothing(self):
        command = under_ddprun(2, TRAIN_CUDA, "--epochs", "1", "--bucket_bytes", "4096")
        expected = self.train(command)
        delayed = self.train(command, environment(FAKE_CUDA_JITTER_US="200"))
        self.assertEqual(delayed[:2], expected[:2])

    def test_with_products_of_bf16_it_learns(self):
        if SANITIZED:
            self.skipTest("takes long")
        losses, ranks, final = self.train(under_ddprun(2, TRAIN_CUDA, "--amp", "bf16"))
        self.assertGreaterEqual(float(final["accuracy"]), 0.95)
        self.check_ranks(2, ranks, final, epochs=20, element_bytes=4)
        exact, _, _ = self.train([TRAIN, "--epochs", "1"], environment(doubles=False))
        self.assertGreater(abs(losses[0] - exact[0]), 1e-6)  # it did round

    def test_without_a_gpu_it_says_so_in_one_line_and_ends_with_2(self):
        for env in (environment(doubles=False), environment(FAKE_CUDA_DEVICES="0")):
            alone = self.finish([TRAIN_CUDA], env)
            self.assertEqual(alone.returncode, 2, alone.stderr)
            lines = [line for line in alone.stderr.splitlines() if "TEST DOUBLE" not in line]
            self.assertEqual(len(lines), 1, alone.stderr)
            self.assertIn("train_cuda: rank 0 cannot use a GPU: ", lines[0])
            for command in (under_ddprun(2, TRAIN_CUDA), [TRAIN_CUDA, "--nprocs", "2"]):
                launched = self.finish(command, env)
                self.assertEqual(launched.returncode, 2, launched.stderr)
                self.assertRegex(launched.stderr, r"rank [01] cannot use a GPU: ")
                self.assertRegex(launched.stderr, r"first failure: rank [01] .*exit code 2")

    def test_wrong_words_are_named(self):
        for wrong in (["--dtype", "f16"], ["--amp", "fp8"], ["--amp", "bf16", "--dtype", "f64"]):
            result = self.finish([TRAIN_CUDA, *wrong], environment(doubles=False))
            self.assertEqual(result.returncode, 2)
            self.assertIn(wrong[0], result.stderr)


if __name__ == "__main__":
    DDPRUN, TRAIN, TRAIN_CUDA, DOUBLES = sys.argv[1:5]
    rest = sys.argv[5:]
    SANITIZED = "--sanitized" in rest
    unittest.main(argv=sys.argv[:1] + [a for a in rest if a != "--sanitized"], verbosity=2)
