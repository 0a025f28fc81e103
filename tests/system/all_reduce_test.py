#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The README's program: what is printed there is what is compiled here, and it does what it says.

Usage: all_reduce_test.py DDPRUN ALL_REDUCE SOURCE README [unittest options]
"""
import pathlib
import re
import subprocess
import sys
import unittest

DDPRUN, ALL_REDUCE, SOURCE, README = "", "", "", ""


def ranks_of(command):
    """The lines of all ranks, without tags, sorted."""
    result = subprocess.run(command, text=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True)
    return sorted(re.sub(r"^\[rank\d+\]: ", "", line) for line in result.stdout.splitlines())


class AllReduce(unittest.TestCase):
    def test_the_readme_shows_this_program(self):
        program = pathlib.Path(SOURCE).read_text(encoding="utf-8")
        self.assertIn(program.split("\n", 1)[1].strip(), pathlib.Path(README).read_text(encoding="utf-8"))

    def test_the_readme_has_no_placeholder_and_shows_the_help_as_it_is(self):
        readme = pathlib.Path(README).read_text(encoding="utf-8")
        self.assertNotIn("@@", readme)
        shown = subprocess.run([DDPRUN, "--help"], text=True, capture_output=True, timeout=60, check=True).stdout
        self.assertIn(shown, readme)

    def test_under_ddprun_every_rank_has_the_sums(self):
        for world in (1, 2, 4):
            sums = f"{world} {sum(range(world))}"
            self.assertEqual(ranks_of([DDPRUN, "--nproc_per_node", str(world), ALL_REDUCE]),
                             [f"rank {rank} of {world}: {sums}" for rank in range(world)])

    def test_by_hand_it_spawns_four_ranks(self):
        self.assertEqual(ranks_of([ALL_REDUCE]), [f"rank {rank} of 4: 4 6" for rank in range(4)])


if __name__ == "__main__":
    DDPRUN, ALL_REDUCE, SOURCE, README = sys.argv[1:5]
    unittest.main(argv=sys.argv[:1] + sys.argv[5:], verbosity=2)
