#!/usr/bin/env python3
"""scripts/card/model.py, sass.py and ptxas.py against times and counts worked out by hand."""

import contextlib
import io
import json
import math
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))

from card import model as card_model  # noqa: E402
from card import ptxas, sass  # noqa: E402

H200 = card_model.CARDS["h200"]
STEP = {"kind": "decode", "tokens": 1, "sequences": 1, "spans": 1, "head_rows": 1, "decode": True,
        "position": 1024, "active": 4, "width": 1000}
MICROSECOND = 1e-6

SASS = """file	kernel	sources	instructions	tensor_all	loop	tensor	streamed	shared	side	side_bytes
a.cu	gemv_kernel<1, true, bf16>	0	900	0	200	0	2048	8	250	2560
a.cu	matrix_kernel<(WeightCode)0, Tile<2, 4, 4, 4, 32, 4>, bf16>	0	900	32	400	32	5120	69	0	0
a.cu	rms_norm_kernel<bf16, 8, true>	0	90	0	40	0	512	8	0	0
a.cu	delta_rule_scan_kernel<bf16, bf16, 16>	0	3900	0	31	0	2048	3	0	0
"""
PTXAS = """file	kernel	registers_80	registers_90	spill_bytes	shared_bytes
a.cu	gemv_kernel<1, true, bf16>	40	64	0	0
a.cu	matrix_kernel<(WeightCode)0, Tile<2, 4, 4, 4, 32, 4>, bf16>	40	128	0	0
a.cu	rms_norm_kernel<bf16, 8, true>	40	32	0	0
a.cu	delta_rule_scan_kernel<bf16, bf16, 16>	40	128	0	0
"""
NVDISASM = """
//--------------------- .text._Z1kv --------------------------
.L_x_0:
        /*0000*/                   LDG.E.128 R4, desc[UR8][R2.64] ;
        /*0010*/                   FADD R4, R4, R5 ;
        /*0020*/               @P0 BRA `(.L_x_0) ;
.L_x_1:
        /*0030*/                   LDGSTS.E.BYPASS.128 [R15], desc[UR8][R6.64] ;
        /*0040*/                   LDS.128 R8, [R15] ;
        /*0050*/                   LDG.E R4, desc[UR8][R2.64] ;
        /*0060*/                   FFMA R4, R4, R5, R6 ;
        /*0070*/              @!P0 BRA `(.L_x_1) ;
        /*0080*/                   NOP ;
        /*0090*/                   EXIT ;
"""


def launch(kernel, **facts):
    return {"kernel": kernel, "blocks": 132, "threads": 256, "shared": 49152, "pdl": True} | facts


def weight(rows, columns, experts=1):
    return {"role": "x", "bytes": 2 * experts * rows * columns, "experts": experts, "rows": rows,
            "columns": columns}


class CardModelTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        tables = pathlib.Path(self.folder.name)
        (tables / "sass.tsv").write_text(SASS)
        (tables / "ptxas.tsv").write_text(PTXAS)
        self.model = card_model.Model("h200", tables)

    def tearDown(self):
        self.folder.cleanup()

    def seconds(self, one, **step):
        return self.model.seconds(one, STEP | step)

    def test_weights_take_their_bytes_at_the_rate_of_a_stream(self):
        time, _, bound = self.seconds(launch("gemv_kernel<1, true, bf16>",
                                             weights=[weight(19350, 10000)]))
        self.assertEqual(bound, "memory")  # 387 MB at 0.9 x 4.3 TB/s: 100 us; x and y: nothing
        self.assertAlmostEqual(time / MICROSECOND, 100 + 0.7, delta=0.1)

    def test_few_blocks_do_not_fill_the_memory(self):
        work = card_model.Work(memory=20e6)  # by 2 processors that have 48 KB in 0.7 us each
        time, bound = card_model.kernel_seconds(H200, work, 2, 256, 4, 49152)
        self.assertEqual(bound, "memory")
        self.assertAlmostEqual(time / MICROSECOND, 20e6 / (2 * 49152 / 0.7))

    def test_a_kernel_takes_at_least_its_latency(self):
        time, _, bound = self.seconds(launch("rms_norm_kernel<bf16, 8, true>", pdl=False))
        self.assertEqual(bound, "latency")
        self.assertAlmostEqual(time / MICROSECOND, 1.3 + 1.2)

    def test_instructions_of_the_hottest_loop_bound_a_matrix_product(self):
        name = "matrix_kernel<(WeightCode)0, Tile<2, 4, 4, 4, 32, 4>, bf16>"
        one = launch(name, blocks=264, shared=81920, weights=[weight(16896, 4096)])
        time, _, bound = self.seconds(one, tokens=256, decode=False)
        # 2 tiles of 128 tokens x 16896 x 4096: 270e3 turns of 32 x 4096 FLOPs and 400
        # instructions, of 16 warps that issue 3.2 a cycle on 132 processors of 1.755 GHz.
        turns = 2 * 2 * 128 * 16896 * 4096 / (32 * 4096)
        self.assertEqual(bound, "issue")
        self.assertAlmostEqual(time / MICROSECOND, turns * 400 / (3.2 * 132 * 1755) + 0.7, delta=1)

    def test_a_block_too_many_makes_the_work_wait_for_a_second_one(self):
        work = card_model.Work(instructions=132e6)
        one, _ = card_model.kernel_seconds(H200, work, 132, 1024, 1, 1)
        two, _ = card_model.kernel_seconds(H200, work, 133, 1024, 1, 1)
        self.assertAlmostEqual(two / one, 2 * 132 / 133)

    def test_experts_that_no_token_visits_cost_nothing(self):
        self.assertAlmostEqual(card_model.experts_touched(64, 4, 1), 4)
        self.assertAlmostEqual(card_model.experts_touched(64, 4, 2), 64 * (1 - (60 / 64) ** 2))

    def test_rows_take_whole_tiles(self):
        self.assertEqual(card_model.tiles_of(64, 1, 64), 1)
        self.assertEqual(card_model.tiles_of(65, 1, 64), 2)
        # Of 100 experts with one row each on average, a tile for those that have some.
        self.assertAlmostEqual(card_model.tiles_of(100, 100, 16), 100 * (1 - math.exp(-1)))
        # With 24 rows on average, one tile of 32 and seldom two.
        self.assertAlmostEqual(card_model.tiles_of(2400, 100, 32), 104.67, delta=0.01)
        self.assertAlmostEqual(card_model.tiles_of(80001, 100, 100), 100 * 8.5, delta=1)

    def test_a_recurrence_of_drafts_runs_token_by_token_after_those_that_were_right(self):
        name = "delta_rule_scan_kernel<bf16, bf16, 16>"
        one = launch(name, blocks=264, threads=128, shared=1024)
        heads = 33  # states of 128 x 128 in bf16
        facts = {"kind": "verify", "tokens": 4, "state_layer_bytes": 2 * heads * 128 * 128,
                 "token_flops": 6 * heads * 128 * 128}
        time, _, bound = self.seconds(one, **facts)
        # On each processor 4 warps of one block with half of the kernel's instructions, and the
        # arithmetic of 4 + 2.4 tokens by 32 lanes; 0.35 instructions a cycle of a warp.
        warp = 3900 / 2 + 6.4 * 6 * heads * 128 * 128 / 64 / (132 * 4)
        self.assertEqual(bound, "issue")
        self.assertAlmostEqual(time / MICROSECOND, warp / 0.35 / 1755 + 0.7, delta=0.01)
        # A prompt's end that takes this kernel is not counted so.
        self.assertLess(self.seconds(one, **facts | {"kind": "prefill"})[0], time)

    def test_drafts_and_their_step_give_the_tokens_of_an_acceptance_length(self):
        class Recorder:
            def record(self, preset, weights, texts):
                steps = [STEP | {"step": text, "kind": text.split(":")[0], "floor_bytes": 4.3e6,
                                 "flops": 0} for text in texts]
                return [(step, [launch("rms_norm_kernel<bf16, 8, true>")] * 10) for step in steps]

        (row, timed, seconds), = card_model.predict_drafts(self.model, Recorder(), "a", "fp8",
                                                           ["drafts:1:4+2"])
        part = 10 * (0.7 + 1.2) + 15  # us
        self.assertAlmostEqual(seconds[0] / MICROSECOND, part)
        self.assertEqual((row["nodes"], len(timed)), (20, 20))
        self.assertAlmostEqual(row["tokens_per_s"], 3.4 / (2 * part * MICROSECOND), delta=0.1)
        self.assertAlmostEqual(row["share_of_floor"], 2 / (2 * part), delta=0.001)

    def test_measurements_are_compared_with_predictions_for_their_own_card(self):
        class Recorder:
            def record(self, preset, weights, texts):
                self.texts = texts
                step = STEP | {"floor_bytes": 1e9, "flops": 0}
                return [(step, [launch("gemv_kernel<1, true, bf16>",
                                       weights=[weight(19350, 10000)])])] * len(texts)

        row = {"stage": "x", "model_filename": "models/presets/granite-4.0-h-tiny", "status": "ok",
               "model_type": "granitemoehybrid BF16", "device": "cuda", "n_prompt": 0, "n_gen": 64,
               "batch": 1, "depth": 1024, "avg_ts": 5000.0, "gpu_info": "NVIDIA H100 80GB HBM3"}
        path, recorder = pathlib.Path(self.folder.name) / "rows", Recorder()
        others = [row | {"status": "does not fit"}, row | {"device": "cpu"}, {"ended": "ok"},
                  row | {"model_type": "granitemoehybrid Q8"}, row | {"gpu_info": "NVIDIA L4"}]
        path.write_text("\n".join(map(json.dumps, [row, row | {"gpu_info": "NVIDIA H200"},
                                                   row | {"batch": 8, "depth": 0}] + others)))

        def table(card):
            with (contextlib.redirect_stdout(io.StringIO()) as text,
                  contextlib.redirect_stderr(io.StringIO()) as notes):
                card_model.print_measured(path, card, pathlib.Path(self.folder.name), recorder)
            lines = [[cell.strip() for cell in line.split("|")[2:-1]]
                     for line in text.getvalue().splitlines()[2:]]
            return lines, notes.getvalue()

        lines, notes = table(None)
        # 387 MB at 0.9 x 3.0 and 4.3 TB/s, a node and the host's 15 us.
        for line, card, us in ((lines[0], "h100", 143.3 + 15.7), (lines[2], "h200", 100 + 15.7)):
            self.assertEqual(line[0], card)
            self.assertAlmostEqual(float(line[6]), 5000 / (1e6 / us), delta=0.011)
        self.assertEqual([line[3] for line in lines], ["decode:1:1024", "decode:8:0",
                                                       "decode:1:1024"])
        self.assertIn("'NVIDIA L4'; give --card", notes)
        self.assertEqual([line[0] for line in table("a100")[0]], ["a100"] * 4)

    def test_a_kernel_that_the_tables_lack_is_an_error(self):
        with self.assertRaisesRegex(SystemExit, "new_kernel: not in .*run scripts/card/sass.py"):
            self.seconds(launch("new_kernel"))

    def test_check_names_what_fell_by_more_than_three_percent(self):
        rows = [{"preset": "a", "weights": "bf16", "workload": f"decode:{i}", "tokens_per_s": rate}
                for i, rate in enumerate((100.0, 97.1, 96.9))]
        before = {card_model.key_of(row): 100.0 for row in rows}
        self.assertEqual(list(card_model.falls(rows, before)),
                         ["a bf16 decode:2: 96.9 tokens/s are predicted, 100.0 before: -3.1%"])
        self.assertEqual(len(list(card_model.falls(rows, {}))), 3)


class SassTableTest(unittest.TestCase):
    def test_the_hottest_loop_is_the_one_that_copies(self):
        counts = dict(zip(sass.COUNTS, sass.counted(NVDISASM)["k"]))
        self.assertEqual(counts, {"instructions": 9, "tensor_all": 0, "loop": 5, "tensor": 0,
                                  "streamed": 512, "shared": 4, "side": 3, "side_bytes": 512})


class PtxasTableTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        top = pathlib.Path(self.folder.name)
        self.top = mock.patch.object(ptxas, "TOP", top)
        self.top.start()
        self.file, self.header = top / "a.cu", top / "a.h"
        self.header.write_text("int width = 4;  // of a row\n")
        self.file.write_text('#include "a.h"\n__global__ void k() { asm("// no comment"); }\n')

    def tearDown(self):
        self.top.stop()
        self.folder.cleanup()

    def is_changed(self, table, compiler="nvcc 13"):
        ptxas.code_of.cache_clear()
        return ptxas.changed([self.file], table, compiler) == [self.file]

    def test_what_the_table_has_is_compiled_again_when_code_or_compiler_changes(self):
        table = {("a.cu", "k"): {ptxas.COLUMNS[-1]: ptxas.sources_of(self.file, "nvcc 13")}}
        self.assertFalse(self.is_changed(table))
        self.assertTrue(self.is_changed({}))
        self.assertTrue(self.is_changed(table, "nvcc 14"))
        self.header.write_text("/* Columns\n of a row */ int width  = 4;\n")
        self.assertFalse(self.is_changed(table))
        self.header.write_text("int width = 8;\n")
        self.assertTrue(self.is_changed(table))
        self.header.write_text("int width = 4;\n")
        self.assertFalse(self.is_changed(table))
        self.file.write_text(self.file.read_text().replace("no comment", "a string"))
        self.assertTrue(self.is_changed(table))

    def test_a_spill_and_registers_beyond_the_tolerance_are_findings(self):
        row = {"registers_90": 64, "spill_bytes": 0}
        table = {("a.cu", "k"): {name: 64 for name in ptxas.COUNTS}}
        for key, more, count in (("a.cu", {"registers_90": 72}, 0), ("a.cu", {"spill_bytes": 4}, 1),
                                 ("a.cu", {"registers_90": 73}, 1), ("b.cu", {}, 1)):
            found = list(ptxas.findings({(key, "k"): row | more}, table))
            self.assertEqual(len(found), count, found)


if __name__ == "__main__":
    unittest.main()
