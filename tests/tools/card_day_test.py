#!/usr/bin/env python3
"""scripts/card/day.py with small scripts in place of programs and card: card_day_test.py HYB."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
HYB = sys.argv.pop() if len(sys.argv) > 1 else None
sys.path.insert(0, str(SCRIPTS))

from card import day as card_day  # noqa: E402

ROW = '{"avg_ts": 12.5, "status": "ok"}'
PROGRAMS = {
    "nvidia-smi": "echo 'NVIDIA H100 80GB HBM3, 81559'",
    "hyb": f"[ $1 != bench ] || echo '{ROW}'\n"
           "[ $1 != doctor ] || printf '{\\n\"cpus\": 2\\n}\\n'",
    "hyb_tests_cuda": "case $1 in\n--list*) printf 'title\\ncuda/conformance\\ncuda/rope\\n';;\n"
                      "*rope) echo rope_test.cpp:7: ERROR: CHECK failed; exit 1;;\nesac",
    "card_nodes": "echo '{\"us_per_node\": 1.5}'",
    **{name: "exit 0" for name in ("card_gates", "card_memory", "card_hop", "python3", "ncu",
                                   "compute-sanitizer")},
}
CALL = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
from card import day as card_day
from card.day import Stage, one
card_day.PACKED = pathlib.Path("not packed")
{patch}
sys.exit(card_day.run_part({part!r}, pathlib.Path(sys.argv[2]), {seconds}))
"""


class CardDayTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.write(**PROGRAMS)

    def tearDown(self):
        self.folder.cleanup()

    def write(self, **programs):
        for name, text in programs.items():
            (self.path / name).write_text(f"#!/bin/sh\n{text}\n")
            (self.path / name).chmod(0o755)

    def run_part(self, part, seconds=100, stages=None):
        """(rows, exit code, seconds)"""
        patch = f"card_day.PARTS = {{{part!r}: lambda listed: [{stages}]}}" if stages else ""
        begin = time.monotonic()
        run = subprocess.run(
            [sys.executable, "-c", CALL.format(patch=patch, part=part, seconds=seconds), SCRIPTS,
             self.path / "out"], capture_output=True, text=True,
            env={**os.environ, "PATH": f"{self.path}:{os.environ['PATH']}"})
        self.assertEqual(run.stderr, "")
        lines = (self.path / "out" / f"rows-{part}.jsonl").read_text().splitlines()
        return list(map(json.loads, lines)), run.returncode, time.monotonic() - begin

    def test_a_cut_keeps_what_was_measured_and_kills_all_that_was_started(self):
        self.write(hop="echo '{\"hop\": 1}'\nprintf unfinished\n"
                       f"(setsid sleep 300 & echo $! >{self.path}/orphan)\nsleep 300")
        rows, code, seconds = self.run_part("A", stages="one('x', 1, 'hop'), one('y', 9, 'true')")
        self.assertEqual(code, 1)
        self.assertLess(seconds, 60)  # not the 300 of those that hold its output
        self.assertEqual([row.get("ended", row.get("hop")) for row in rows[1:]], [1, "cut", "ok"])
        self.assertEqual(rows[2]["text"], "unfinished")
        orphan = (self.path / "orphan").read_text().strip()
        self.assertFalse(pathlib.Path("/proc", orphan).exists())
        self.assertIn("[x] unfinished", (self.path / "out" / "log-A.txt").read_text())

    def test_the_end_of_a_part_cuts_a_stage_and_names_what_did_not_run(self):
        seconds = card_day.END_SECONDS + 4
        rows, _, _ = self.run_part("A", seconds, "Stage('x', 99, {'a': ['sleep', '99'], 'b': "
                                   "['true']}), one('y', 99, 'true')")
        self.assertEqual([(row["job"], row["ended"]) for row in rows[1:]],
                         [("a", "cut"), ("b", "not run"), ("y", "not run")])

    def test_jobs_of_a_stage_run_beside_each_other_and_one_that_is_not_there_is_named(self):
        rows, _, _ = self.run_part("A", stages="Stage('x', 20, {'a': ['sh', '-c', 'until [ -e "
                                   f"{self.path}/b ]; do sleep 0.01; done'], 'b': ['touch', "
                                   f"'{self.path}/b'], 'c': ['no-such-program']}}, at_once=3)")
        self.assertEqual({row["job"]: row["ended"] for row in rows[1:]},
                         {"a": "ok", "b": "ok", "c": "failed"})

    def test_part_a_goes_from_what_is_wrong_to_what_decides_designs_to_first_speeds(self):
        rows, code, _ = self.run_part("A")
        self.assertEqual(list(dict.fromkeys(row["stage"] for row in rows)),
                         ["start", "machine", "demo", "conformance", "suites", "nodes", "gates",
                          "memory", "first-350m", "first-tiny", "hop"])
        self.assertTrue(all(row["card"] == "NVIDIA H100 80GB HBM3" for row in rows))
        failed = [row for row in rows if row.get("ended", "ok") != "ok"]
        self.assertEqual([(row["job"], row["ended"]) for row in failed], [("cuda/rope", "failed")])
        self.assertEqual(failed[0]["text"], "rope_test.cpp:7: ERROR: CHECK failed")
        self.assertEqual(code, 1)
        self.assertIn({"cpus": 2}, [row.get("said") for row in rows])
        self.assertIn(1.5, [row.get("us_per_node") for row in rows])

    def test_part_b_leaves_out_what_a_card_has_no_memory_for_and_names_rows_that_failed(self):
        self.write(hyb="[ $1 != bench ] || echo '{\"status\": \"does not fit\"}'",
                   hyb_tests_cuda="echo cuda/conformance")
        rows, _, _ = self.run_part("B")
        ended = {row["job"]: (row["ended"], row.get("text")) for row in rows if "ended" in row}
        self.assertEqual(ended["qwen-35b"], ("not run", None))
        self.assertEqual(ended["tiny-decode"], ("failed", "does not fit"))
        self.assertEqual(ended["racecheck"], ("ok", None))

    def test_limits_fit_their_part_and_parts_fit_five_and_eight_minutes(self):
        for part, minutes in (("A", 5), ("B", 8)):
            stages = card_day.PARTS[part](["cuda/conformance", "cuda/rope"])
            whole = sum(stage.seconds for stage in stages if not stage.spare)
            self.assertLessEqual(whole + card_day.END_SECONDS, card_day.PART_SECONDS[part])
            self.assertLessEqual(card_day.PART_SECONDS[part] + card_day.START_SECONDS, 60 * minutes)
            spare = [stage.spare for stage in stages]
            self.assertEqual(spare, sorted(spare))  # they take no time of the others

    @unittest.skipUnless(HYB, "no hyb was named")
    def test_hyb_takes_every_line_of_the_plan(self):
        lines = set()
        for part in card_day.PARTS.values():
            for stage in part(["cuda/conformance"]):
                for command in stage.jobs.values():
                    text = " ".join(f"'{word}'" if " " in word else word for word in command)
                    lines |= set(re.findall(r"\bhyb (?:bench|run) [^)]*--device cuda[^)]*", text))
        self.assertGreater(len(lines), 12)
        top = SCRIPTS.parent
        for line in lines:
            # Without CUDA it says so once it has read the options, with it that there is no card.
            run = subprocess.run(f"{HYB} {line.removeprefix('hyb ')}", shell=True, cwd=top,
                                 capture_output=True, text=True,
                                 env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
            self.assertRegex(run.stderr, "(?m)^hyb: error: (cuda|--device cuda): ", line)
        doctor = subprocess.run([HYB, "doctor", "--json"], capture_output=True)
        self.assertEqual(doctor.returncode, 0)

    def test_launches_that_ncu_lists_are_summed_by_kernel(self):
        lines = ["==PROF== Connected", '"ID","Kernel Name","gpu__time_duration.sum",'
                 '"dram__bytes_read.sum","dram__bytes_write.sum"', '"","","ns","byte","byte"',
                 '"0","a<1, 2>","1,000","5","1"', '"1","b","7000","0","0"',
                 '"2","a<1, 2>","500","4","2"', "==PROF== Disconnected"]
        self.assertEqual(list(card_day.kernel_rows(lines)),
                         [{"kernel": "b", "launches": 1, "us": 7.0, "bytes": 0},
                          {"kernel": "a<1, 2>", "launches": 2, "us": 1.5, "bytes": 12}])
        self.assertEqual(list(card_day.kernel_rows(["text"])), [])

    def test_what_is_too_large_to_be_carried_is_named(self):
        self.assertEqual(list(card_day.check_sizes(20 * 10**6, 60 << 20)), [])
        self.assertEqual(list(card_day.check_sizes(21 * 10**6, 63 << 20)),
                         ["the archive has 21.0 MB, at most 20.0",
                          "all that travels has 66.1 MB, at most 62.9"])


if __name__ == "__main__":
    unittest.main()
