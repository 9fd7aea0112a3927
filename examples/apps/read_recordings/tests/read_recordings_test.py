# SPDX-License-Identifier: Apache-2.0
"""Tests of read_recordings, copied to an empty folder. PLAN_EXPERTS names the program that then reads
the loads. Cases of .pt files are skipped without PyTorch."""

import contextlib
import hashlib
import importlib.util
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy

import recorder

SCRIPT = pathlib.Path(__file__).resolve().parent.parent / "read_recordings.py"
TORCH = importlib.util.find_spec("torch") is not None
SLOTS = numpy.array([[0, 1, 2, 3, 0, 2], [3, 2, 1, 0, 1, 1]], numpy.int64)  # 2 layers, 4 experts


def physical(step, rank):
    """Counts of the slots that no other step has."""
    return numpy.arange(12, dtype=numpy.int32).reshape(2, 6) * (rank + 1) + 100 * step + 1


def logical(step, ranks):
    """The loads of experts that the slots' counts give, added by hand in another way."""
    loads = numpy.zeros((2, 4), int)
    for rank in range(ranks):
        for layer, slot in numpy.ndindex(2, 6):
            loads[layer, SLOTS[layer, slot]] += physical(step, rank)[layer, slot]
    return loads


def recorded_by(buffers, steps):
    for step in steps:
        for rank, buffer in enumerate(buffers):
            buffer.append(physical(step, rank))


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        shutil.copy(SCRIPT, self.folder)
        self.output = self.folder / "loads.npy"

    def run_script(self, *arguments):
        return subprocess.run(
            [sys.executable, "-I", "read_recordings.py", *map(str, arguments), "--output", "loads.npy"],
            cwd=self.folder, capture_output=True, text=True)

    def read(self, *arguments):
        """Returns the loads that the program writes, and what it prints."""
        result = self.run_script(*arguments)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return numpy.load(self.output), result.stdout

    def refused(self, message, *arguments):
        result = self.run_script(*arguments)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn(message, result.stderr)
        self.assertFalse(self.output.exists())
        if message.startswith("read_recordings: "):
            self.assertEqual(result.stderr.count("\n"), 1)
        return result.stderr

    def assert_loads(self, loads, expected):
        self.assertEqual(loads.dtype, numpy.int64)
        numpy.testing.assert_array_equal(loads, expected)

    def save(self, name, recording):
        recorder.save(recording, self.folder / name)
        return name


class Ring(Case):
    """The order of a ring's rows; without PyTorch, from the module."""

    def setUp(self):
        super().setUp()
        spec = importlib.util.spec_from_file_location("read_recordings", SCRIPT)
        self.module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)
        self.buffers = [recorder.Ring(7, (2, 6)) for _ in range(2)]

    def steps(self, oldest=None):
        recording = recorder.stat(self.buffers, SLOTS, 4)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            loads = self.module.read_stat(recording, oldest, "a.pt")
        self.printed = printed.getvalue()
        return loads

    def assert_steps(self, steps, oldest=None):
        self.assert_loads(self.steps(oldest), [logical(step, 2) for step in steps])

    def assert_unknown(self, gaps, oldest=None):
        with self.assertRaisesRegex(self.module.InvalidRecording, gaps):
            self.steps(oldest)

    def test_not_full(self):
        recorded_by(self.buffers, range(3))
        self.assert_steps([0, 1, 2])
        self.assertEqual(self.printed, "a.pt: 3 of 7 rows have load, the oldest is row 0\n")

    def test_second_recording_begins_where_the_first_one_ended(self):
        recorded_by(self.buffers, range(5))
        for buffer in self.buffers:
            buffer.start()
        recorded_by(self.buffers, range(10, 14))  # rows 5, 6, 0, 1
        self.assert_steps([10, 11, 12, 13])
        self.assertEqual(self.printed, "a.pt: 4 of 7 rows have load, the oldest is row 5\n")

    def test_wrapped(self):
        recorded_by(self.buffers, range(9))
        self.assert_unknown("to find the oldest of 7 rows, got load in all: give --oldest")
        self.assert_steps([2, 3, 4, 5, 6, 7, 8], oldest=9 % 7)
        self.assert_steps([7, 8, 2, 3, 4, 5, 6], oldest="unknown")
        self.assertIn("in the order of the rows", self.printed)

    def test_exactly_full(self):
        recorded_by(self.buffers, range(7))
        self.assert_unknown("got load in all")
        self.assert_steps(range(7), oldest=0)

    def test_one_row_left(self):
        recorded_by(self.buffers, range(6))
        self.assert_steps(range(6))

    def test_passes_without_tokens(self):
        recorded_by(self.buffers, range(2))
        for buffer in self.buffers:
            buffer.append(numpy.zeros((2, 6), numpy.int32))
        recorded_by(self.buffers, range(2, 4))
        self.assert_unknown("rows without load in 2 places")
        self.assert_steps(range(4), oldest=0)
        self.assert_steps([2, 3, 0, 1], oldest=3)

    def test_unlimited_buffer(self):
        self.buffers = [recorder.Unlimited(), recorder.Unlimited()]
        recorded_by(self.buffers, range(5))
        self.assert_unknown("got load in all")
        self.assert_steps(range(5), oldest=0)

    def test_one_step(self):
        self.buffers = [recorder.Unlimited()]
        self.buffers[0].append(physical(0, 0))
        self.assert_loads(self.steps(), [logical(0, 1)])

    def test_no_step(self):
        self.assert_unknown("expected a step with load, got 7 rows of zeros")

    def test_row_outside(self):
        recorded_by(self.buffers, range(9))
        self.assert_unknown("--oldest: expected a row of a.pt, 0 to 6, got 7", oldest=7)

    def test_sum_of_all_steps(self):
        total = numpy.array([[1, 2], [0, 0]])
        with contextlib.redirect_stdout(io.StringIO()):
            self.assert_loads(self.module.read_stat({"logical_count": total}, None, "a.pt"), [total])

    def test_fractions_and_negative_counts(self):
        for counts, message in ((numpy.ones((1, 2, 4)), "expected integers of 3 dimensions, got float64"),
                                (numpy.full((1, 2, 4), -1), "expected numbers of at least 0, got -1")):
            with self.assertRaisesRegex(self.module.InvalidRecording, message):
                self.module.read_stat({"logical_count": counts}, None, "a.pt")


@unittest.skipUnless(TORCH, "no PyTorch")
class Stat(Case):
    def test_files(self):
        buffers = [recorder.Ring(1000, (3, 6))]
        for step in range(8):
            buffers[0].append(numpy.vstack([numpy.zeros((1, 6), int), physical(step, 0)]))
        slots = numpy.vstack([[[0, 1, 2, 3, 0, 1]], SLOTS])  # the first layer is dense
        self.save("a.pt", recorder.stat(buffers, slots, 4))
        loads, printed = self.read("a.pt")
        expected = numpy.zeros((8, 3, 4), int)
        expected[:, 1:] = [logical(step, 1) for step in range(8)]
        self.assert_loads(loads, expected)
        self.assertEqual(printed, "a.pt: 8 of 1000 rows have load, the oldest is row 0\n"
                         "loads.npy: 8 steps, 3 layers, 4 experts\n"
                         "only some layers have load: plan_experts --layers 1:3\n")
        loads, _ = self.read("a.pt", "a.pt")
        self.assertEqual(len(loads), 16)
        self.output.unlink()
        self.refused("read_recordings: --oldest: expected one file, got 2", "a.pt", "a.pt", "--oldest", 3)

    def test_wrapped_ring(self):
        buffers = [recorder.Ring(4, (2, 6)) for _ in range(2)]
        recorded_by(buffers, range(6))
        self.save("a.pt", recorder.stat(buffers, SLOTS, 4))
        self.refused("read_recordings: a.pt: expected to find the oldest of 4 rows, got load in all", "a.pt")
        loads, _ = self.read("a.pt", "--oldest", 2)
        self.assert_loads(loads, [logical(step, 2) for step in (2, 3, 4, 5)])

    def test_other_files(self):
        import torch
        torch.save([1], self.folder / "list.pt")
        torch.save({"weights": torch.zeros(2)}, self.folder / "weights.pt")
        (self.folder / "text.pt").write_text("no recording")
        self.refused("read_recordings: list.pt: expected a recording of SGLang, with logical_count or "
                     "records, got list", "list.pt")
        self.refused("read_recordings: weights.pt: expected a recording of SGLang, with logical_count "
                     "or records, got ['weights']", "weights.pt")
        self.refused("read_recordings: text.pt: expected a file of PyTorch, got ", "text.pt")
        self.refused("read_recordings: missing.pt: expected a file of PyTorch, got ", "missing.pt")
        self.save("stat.pt", recorder.stat([recorder.Ring(2, (2, 6))], SLOTS, 4))
        self.save("passes.pt", recorder.passes(0, SLOTS, [physical(0, 0)], 5))
        self.refused("read_recordings: stat.pt: expected files of one mode", "stat.pt", "passes.pt")
        self.save("keys.pt", {"records": []})
        self.refused("read_recordings: keys.pt: expected the key 'last_physical_to_logical_map'", "keys.pt")


@unittest.skipUnless(TORCH, "no PyTorch")
class Passes(Case):
    def rank(self, rank, steps, first, slots=SLOTS, name=None):
        counts = [physical(step, rank) for step in steps]
        return self.save(name or f"{rank}.pt", recorder.passes(rank, slots, counts, first))

    def test_ranks_are_added(self):
        files = [self.rank(rank, range(3), 40) for rank in (1, 0, 2)]
        loads, _ = self.read(*files)
        self.assert_loads(loads, [logical(step, 3) for step in range(3)])

    def test_passes_of_all_ranks(self):
        self.rank(0, [0, 1, 2], 40)
        self.rank(1, [1, 2, 3], 41)
        loads, printed = self.read("0.pt", "1.pt")
        self.assert_loads(loads, [logical(step, 2) for step in (1, 2)])
        self.assertTrue(printed.startswith("left out 2 of 4 passes, which not all 2 ranks recorded\n"))

    def test_two_recordings(self):
        later, earlier = self.rank(0, [5, 6], 90, name="a.pt"), self.rank(0, [2, 3], 30, name="b.pt")
        loads, _ = self.read(later, earlier)
        self.assert_loads(loads, [logical(step, 1) for step in (2, 3, 5, 6)])

    def test_per_token(self):
        ids = numpy.array([[[0, 1], [5, -1]], [[3, 2], [3, 4]]], numpy.int32)  # slots [layers, tokens, k]
        counts = numpy.array([[1, 1, 0, 0, 0, 1], [0, 0, 1, 2, 1, 0]], numpy.int32)
        self.save("a.pt", recorder.passes(0, SLOTS, [counts], 7, [ids]))
        loads, _ = self.read("a.pt")
        self.assert_loads(loads, [[[1, 1, 1, 0], [2, 2, 0, 0]]])

    def test_refused(self):
        start = "read_recordings: "
        self.rank(0, range(2), 40)
        self.rank(2, range(2), 40)
        self.refused(start + "0.pt: expected recordings of all ranks, got none of rank 1", "0.pt", "2.pt")
        self.refused(start + "0.pt: expected each pass of a rank once, got pass 40 of rank 0 again",
                     "0.pt", "0.pt")
        self.refused(start + "--oldest: expected a file of the mode stat, got 0.pt, whose passes have ids",
                     "0.pt", "--oldest", 0)
        self.rank(1, range(2), 40, slots=SLOTS[::-1])
        self.refused(start + "1.pt: expected the last_physical_to_logical_map of 0.pt, got another one",
                     "0.pt", "1.pt")
        self.rank(1, range(2), 80)
        self.refused(start + "0.pt: expected a pass that all ranks recorded, got 4 of some ranks",
                     "0.pt", "1.pt")
        self.save("1.pt", recorder.passes(1, SLOTS, [physical(0, 0)[:, :4]], 40))
        self.refused(start + "1.pt: global_physical_count of pass 40: expected [2, 6], as the map, "
                     "got [2, 4]", "1.pt")
        self.save("1.pt", recorder.passes(0, SLOTS, [], 40))
        self.refused(start + "1.pt: expected records of passes, got none", "1.pt")


class TensorRtLlm(Case):
    def write(self, rank, counts, kind="I64"):
        """Writes safetensors: header size, header padded by spaces, elements."""
        header, data = {"__metadata__": {"format": "pt"}}, b""
        for key, values in counts.items():
            part = numpy.array(values, {"I64": "<i8", "I32": "<i4", "F32": "<f4"}[kind]).tobytes()
            header[key] = {"dtype": kind, "shape": [len(values)],
                           "data_offsets": [len(data), len(data) + len(part)]}
            data += part
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        file = self.folder / "statistic" / f"rank{rank}.safetensors"
        file.write_bytes(len(text).to_bytes(8, "little") + text + data)

    def setUp(self):
        super().setUp()
        (self.folder / "statistic").mkdir()
        (self.folder / "statistic" / "meta_info.json").write_text(
            json.dumps({"num_experts": 3, "num_experts_per_token": 2}))

    def test_sum_of_ranks_in_order(self):
        # Iterations and layers are numbers: 100 follows 99, and layer 10 follows layer 9.
        self.write(0, {"100_9": [1, 2, 3], "99_9": [4, 5, 6], "99_10": [7, 8, 9], "100_10": [1, 0, 0]})
        self.write(1, {"99_10": [1, 1, 1], "99_9": [10, 0, 0]}, "I32")
        self.write("0_raw", {"99_9": [0, 1]})
        loads, printed = self.read("statistic")
        self.assert_loads(loads, [[[14, 5, 6], [8, 9, 10]], [[1, 2, 3], [1, 0, 0]]])
        self.assertEqual(printed, "loads.npy: 2 steps, 2 layers, 3 experts\n"
                         "the rows are layers of the model: plan_experts --layer-ids 9:11\n")

    def test_library_reads_the_same(self):
        try:
            from safetensors.numpy import save_file
        except ImportError:
            self.skipTest("no package safetensors")
        save_file({"7_3": numpy.array([3, 1, 2])}, self.folder / "statistic" / "rank0.safetensors")
        loads, _ = self.read("statistic")
        self.assert_loads(loads, [[[3, 1, 2]]])

    def test_refused(self):
        start = "read_recordings: statistic"
        self.refused(start + ": expected recordings of all ranks, got none of rank 0", "statistic")
        self.write(0, {})
        self.refused(start + ": expected counts, got none", "statistic")
        self.write(2, {})
        self.refused(start + ": expected recordings of all ranks, got none of rank 1", "statistic")
        (self.folder / "statistic" / "rank2.safetensors").unlink()
        self.write(0, {"7_3": [1, 2, 3, 4]})
        self.refused(start + "/rank0.safetensors: 7_3: expected 3 counts, as meta_info.json says, got 4",
                     "statistic")
        self.write(0, {"7_3": [1, 2, 3], "8_4": [1, 2, 3]})
        self.refused(start + ": expected every layer in every iteration, got 7 without layer 4", "statistic")
        self.write(0, {"seven": [1, 2, 3]})
        self.refused(start + "/rank0.safetensors: seven: expected a name ITERATION_LAYER", "statistic")
        self.write(0, {"7_3": [1, 2, 3]}, "F32")
        self.refused(start + "/rank0.safetensors: 7_3: expected safetensors of int32 or int64, got ", "statistic")
        file = self.folder / "statistic" / "rank0.safetensors"
        self.write(0, {"7_3": [1, 2, 3]})
        for damaged in (file.read_bytes()[:-1], file.read_bytes()[:20], b""):
            file.write_bytes(damaged)
            self.refused(start + "/rank0.safetensors: ", "statistic")
        # Offsets and shapes that lie, and JSON that Python cannot hold.
        for tensor in ({"data_offsets": [-8, 16]}, {"data_offsets": [8, 32]}, {"data_offsets": [0, 2**70]},
                       {"data_offsets": [0]}, {"data_offsets": 0}, {"shape": [2**40, 2**40]}, {"shape": [-3]},
                       {"shape": [1.5]}, {"shape": [True, 3]}, {"dtype": ["I64"]}):
            text = json.dumps({"7_3": {"dtype": "I64", "shape": [3], "data_offsets": [0, 24], **tensor}}).encode()
            file.write_bytes(len(text).to_bytes(8, "little") + text + bytes(24))
            self.refused(start + "/rank0.safetensors: 7_3: expected ", "statistic")
        for text in (b"[" * 100000, b"[]", b"\xff", b'{"7_3": 3}', b'{"7_3": ' + b"9" * 5000 + b"}"):
            file.write_bytes(len(text).to_bytes(8, "little") + text)
            self.refused(start + "/rank0.safetensors: ", "statistic")
        meta = self.folder / "statistic" / "meta_info.json"
        for text in ("{}", '{"num_experts": Infinity}', '{"num_experts": 1e400}', '{"num_experts": 0}',
                     '{"num_experts": true}', '{"num_experts": 65536}', "[" * 100000, "\ud800"):
            meta.write_bytes(text.encode("utf-8", "surrogatepass"))
            self.refused(start + "/meta_info.json: expected JSON with num_experts", "statistic")
        self.refused("read_recordings: --experts: expected .npy or .csv files, got statistic", "statistic",
                     "--experts", 3)


class Csv(Case):
    """SGLang's older recordings: one file per rank, no line for an expert without tokens."""

    def setUp(self):
        super().setUp()
        (self.folder / "rank0.csv").write_text(
            "layer_id,expert_id,count\n3,0,100\n3,1,700\n3,3,20\n4,0,50\n4,1,60\n4,2,300\n4,3,410\n")
        (self.folder / "rank1.csv").write_text(
            "count, layer_id ,expert_id\r\n500,3,1\r\n30,3,2\r\n\r\n5,4,0\r\n900,4,3\r\n")

    def test_ranks_are_added(self):
        loads, printed = self.read("rank0.csv", "rank1.csv")
        zeros = [[0, 0, 0, 0]] * 3
        self.assert_loads(loads, [zeros + [[100, 1200, 30, 20], [55, 60, 300, 1310]]])
        self.assertEqual(printed, "loads.npy: 1 steps, 5 layers, 4 experts\n"
                         "only some layers have load: plan_experts --layers 3:5\n")
        loads, _ = self.read("rank0.csv", "--experts", 6)
        self.assertEqual(loads.shape, (1, 5, 6))

    def test_refused(self):
        file = self.folder / "rank0.csv"
        start = "read_recordings: rank0.csv: "
        self.refused(start + "line 4: expected an expert_id below --experts 3, got 3", "rank0.csv", "--experts", 3)
        names = "layer_id,expert_id,count\n"
        for text, message in (
                ("", "expected the columns layer_id, expert_id and count, each once, got an empty file"),
                ("layer,count\n", "expected the columns layer_id, expert_id and count, each once, got layer, load"),
                ("layer,expert,count,load\n", "expected the columns "),
                (names, "expected lines with loads, got none"),
                (names + "3,0\n", "line 2: expected 3 fields, got 2"),
                (names + "3,0,1\n3,0,2\n", "line 3: expected one line for each expert of a layer, got layer 3, "
                 "expert 0 again"),
                (names + "-1,0,1\n", "line 2: expected a whole number from 0 to 1048576 as layer_id, got -1"),
                (names + "1,65535,1\n", "line 2: expected a whole number from 0 to 65534 as expert_id, got 65535"),
                (names + "1,0,1.5\n", "line 2: expected a whole number from 0 to 140737488355327 as count, got 1.5"),
                (names + "1,0," + "9" * 5000 + "\n", "line 2: expected a whole number"),
                (names + "1000000,65534,1\n", "expected a line for each million loads, got 1 for ")):
            file.write_text(text)
            self.refused(start + message, "rank0.csv")
        file.write_bytes(b"layer_id,\xff")
        self.refused("read_recordings: ", "rank0.csv")


class RtpLlm(Case):
    """RTP-LLM's exported statistics: the tokens of each rank in an interval of steps."""

    def write(self, rank, step, loads, size=2, **more):
        name = f"eplb_stats_rank{rank}_step{step}_1764000000{step}.json"
        content = {"timestamp_ms": 1, "total_step": step, "interval_steps": 10, "ep_rank": rank, "ep_size": size,
                   "layer_num": len(loads), "log_exp_num": 3, "log_stats": loads, "gpu_loads": [[1, 1]], **more}
        (self.folder / name).write_text(json.dumps(content))
        return name

    def test_ranks_are_added(self):
        files = [self.write(0, 20, [[1, 2, 3], [4, 5, 6]]), self.write(1, 20, [[10, 0, 0], [0, 10, 0]]),
                 self.write(1, 10, [[1, 1, 1], [2, 2, 2]]), self.write(0, 10, [[0, 0, 5], [0, 0, 0]]),
                 self.write(0, 30, [[9, 9, 9], [9, 9, 9]])]
        loads, printed = self.read(*files)
        self.assert_loads(loads, [[[1, 1, 6], [2, 2, 2]], [[11, 2, 3], [4, 15, 6]]])
        self.assertEqual(printed, "left out 1 of 3 steps, which not all ranks wrote\n"
                         "loads.npy: 2 steps, 2 layers, 3 experts\n")

    def test_refused(self):
        good = self.write(0, 10, [[1, 2, 3]], size=1)
        start = f"read_recordings: {good}: "
        for more, message in (({"log_stats": [[1, 2], [3]]}, "log_stats: expected "),
                              ({"log_stats": [[1.5, 2, 3]]}, "log_stats: expected integers of 2 dimensions"),
                              ({"log_stats": [[1, -2, 3]]}, "log_stats: expected numbers of at least 0, got -2"),
                              ({"log_stats": [[2**70]]}, "log_stats: expected "),
                              ({"ep_rank": 1}, "ep_rank: expected a rank below ep_size 1, got 1"),
                              ({"total_step": None}, "expected JSON with ep_rank"),
                              ({"ep_size": "1"}, "expected JSON with ep_rank")):
            self.write(0, 10, [[1, 2, 3]], **{"size": 1, **more} if "ep_size" not in more else more)
            self.refused(start + message, good)
        for text in ("[]", "{", "[" * 100000):
            (self.folder / good).write_text(text)
            self.refused(start + "expected JSON with ep_rank", good)
        self.write(0, 10, [[1, 2, 3]], size=2)
        self.refused(start + "expected a step of all 2 ranks, got 1 of some ranks", good)
        self.refused(start + "expected each step of a rank once, got step 10 of rank 0 again", good, good)
        other = self.write(1, 10, [[1, 2]], size=2)
        self.refused("read_recordings: step 10 of rank 1: expected [layers, experts] of [1, 3], as in step 10 of "
                     "rank 0, got [1, 2]", good, other)
        self.write(1, 10, [[1, 2, 3]], size=3)
        self.refused(start + "expected recordings of one number of ranks, got [2, 3]", good, other)


@unittest.skipUnless(TORCH, "no PyTorch")
class Megatron(Case):
    """Trace v1 of Megatron-LM's imbalance benchmark: a folder for each step, layer and microbatch."""

    IDS = numpy.array([[0, 1], [3, 0], [2, 0]])

    def write(self, name, ids=IDS, **ids_of_trace):
        recorder.trace(self.folder / name, ids, 4, **ids_of_trace)
        return name

    def edit(self, name, **changes):
        """Changes keys of a manifest; None removes one."""
        file = self.folder / name / "manifest.json"
        manifest = json.loads(file.read_text()) | changes
        file.write_text(json.dumps({key: value for key, value in manifest.items() if value is not None}))

    def edit_ids(self, name, **changes):
        manifest = json.loads((self.folder / name / "manifest.json").read_text())
        manifest["tensors"]["expert_ids"] |= changes
        self.edit(name, tensors=manifest["tensors"])

    def test_one_trace(self):
        loads, printed = self.read(self.write("a"))
        self.assert_loads(loads, [[[3, 1, 1, 1]]])
        self.assertEqual(printed, "loads.npy: 1 steps, 1 layers, 4 experts\n"
                         "the rows are layers of the model: plan_experts --layer-ids 0\n")

    def test_steps_layers_and_microbatches(self):
        folders = [self.write(f"{step}_{layer}_{batch}", (self.IDS[:step + 1] + layer) % 4, step=step, layer=layer,
                              microbatch=batch)
                   for step in (2, 0) for layer in (9, 10) for batch in (0, 1)]
        loads, printed = self.read(*folders)
        # Two equal microbatches; ids are higher by the layer, modulo four experts.
        self.assert_loads(loads, [[[0, 2, 2, 0], [0, 0, 2, 2]], [[2, 6, 2, 2], [2, 2, 6, 2]]])
        self.assertIn("plan_experts --layer-ids 9:11\n", printed)

    def test_refused_traces(self):
        start = "read_recordings: "
        self.write("a")
        self.write("b")
        self.refused(start + "b: expected each microbatch of a step and layer once, got step 0, layer 0, microbatch 0 "
                     "again, after a", "a", "b")
        self.edit("b", step_id=1, logical_layer_id=2)
        self.refused(start + "INPUT: expected every layer in every iteration, got 0 without layer 2", "a", "b")
        self.edit("b", num_experts=5, logical_layer_id=0)
        self.refused(start + "b/manifest.json: num_experts: expected 4, as in a, got 5", "a", "b")
        (self.folder / "c").mkdir()
        self.refused(start + "INPUT: expected files .pt or .csv of SGLang, ", "a", "c")
        self.refused(start + "--experts: expected .npy or .csv files, got a", "a", "--experts", 4)

    def test_refused_manifests(self):
        start = "read_recordings: a/manifest.json"
        for changes, message in (
                ({"schema_version": 2}, ": schema_version: expected 1, got 2"),
                ({"schema_version": None}, ": schema_version: expected 1, got None"),
                ({"schema_version": True}, ": schema_version: expected 1, got True"),
                ({"num_experts": 0}, ": num_experts: expected a whole number from 1 to 65535, got 0"),
                ({"step_id": -1}, ": step_id: expected a whole number from 0 to "),
                ({"logical_layer_id": "0"}, ": logical_layer_id: expected a whole number from 0 to "),
                ({"microbatch_id": 1.5}, ": microbatch_id: expected a whole number from 0 to "),
                ({"logical_num_tokens": 4}, ": logical_num_tokens: expected 3, as in expert_ids [3, 2], got 4"),
                ({"topk": None}, ": topk: expected a whole number from 1 to "),
                ({"topk": 3}, ": topk: expected 2, as in expert_ids [3, 2], got 3"),
                ({"tensors": []}, ": tensors: expert_ids: expected file, sha256, shape and dtype, got None"),
                ({"tensors": {"expert_ids": {"file": "a"}}}, ": tensors: expert_ids: expected file, sha256, ")):
            self.write("a")
            self.edit("a", **changes)
            self.refused(start + message, "a")
            shutil.rmtree(self.folder / "a")
        for text in ("[]", "{", "[" * 100000):
            (self.folder / "a").mkdir(exist_ok=True)
            (self.folder / "a" / "manifest.json").write_text(text)
            self.refused(start + ": expected JSON of a trace of Megatron-LM, got ", "a")

    def test_refused_tensors(self):
        start = "read_recordings: a/tensors/expert_ids.pt: "
        self.write("a")
        self.edit_ids("a", shape=[2, 3])
        self.refused(start + "expected int64 [2, 3] of the manifest, as int64 [tokens, k], got int64 [3, 2]", "a")
        self.edit_ids("a", shape=[3, 2], dtype="int32")
        self.refused(start + "expected int32 [3, 2] of the manifest, as int64 [tokens, k], got int64 [3, 2]", "a")
        self.edit_ids("a", dtype="int64", file="tensors/\0")
        self.refused("read_recordings: a/manifest.json: tensors: expert_ids: file: expected the name of a file", "a")
        self.edit_ids("a", file="none.pt")
        self.refused("read_recordings: a/none.pt: expected it to be read or written, got No such file", "a")
        self.edit_ids("a", file="tensors/token_ids.pt", sha256="0" * 64)
        self.refused("read_recordings: a/tensors/token_ids.pt: expected the sha256 of the manifest, 0000", "a")
        for number, (content, message) in enumerate(((self.IDS + 1, "ids from 0 to 3, got 4"),
                                                     (self.IDS - 1, "ids from 0 to 3, got -1"),
                                                     (self.IDS * 0 + [[1, 1], [1, 2], [2, 2]],
                                                      "different experts of a token, got one twice in row 0"))):
            self.write(f"id{number}", content)
            self.refused(f"read_recordings: id{number}: expert_ids: expected {message}", f"id{number}")
        for number, (content, message) in enumerate((([1], "a tensor of integers, got 'list'"),
                                                     (self.IDS[0], "int64 [3, 2] of the manifest"),
                                                     (self.IDS * 0.5, "int64 [3, 2] of the manifest"))):
            name = self.write(f"tensor{number}")
            file = self.folder / name / "tensors" / "expert_ids.pt"
            recorder.save(content, file)
            self.edit_ids(name, sha256=hashlib.sha256(file.read_bytes()).hexdigest())
            self.refused(f"read_recordings: {name}/tensors/expert_ids.pt: expected {message}", name)


class Output(Case):
    def setUp(self):
        super().setUp()
        numpy.save(self.folder / "ids.npy", numpy.array([[[0, 1]]]))

    def write(self, output):
        return subprocess.run(
            [sys.executable, "-I", "read_recordings.py", "ids.npy", "--experts", "2", "--output", output],
            cwd=self.folder, capture_output=True, text=True)

    def test_behind_a_link(self):
        (self.folder / "link.npy").symlink_to("target.npy")
        self.assertEqual(self.write("link.npy").returncode, 0)
        self.assertTrue((self.folder / "link.npy").is_symlink())
        self.assertEqual(numpy.load(self.folder / "target.npy").tolist(), [[[1, 1]]])

    def test_into_what_is_no_ordinary_file(self):
        os.mkfifo(self.folder / "pipe")
        reader = subprocess.Popen(["cat", "pipe"], cwd=self.folder, stdout=subprocess.PIPE)
        self.assertEqual(self.write("pipe").returncode, 0)
        content, _ = reader.communicate()
        self.assertEqual(numpy.load(io.BytesIO(content)).tolist(), [[[1, 1]]])
        if os.path.exists("/dev/full"):
            before = os.stat("/dev/full")
            result = self.write("/dev/full")
            self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1))
            self.assertEqual(os.stat("/dev/full").st_ino, before.st_ino)

    def test_one_line_for_any_name(self):
        result = subprocess.run(
            [sys.executable, "-I", "read_recordings.py", "no\nfile.npy", "--experts", "2", "--output", "x.npy"],
            cwd=self.folder, capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1))
        for option, value in (("--experts", "9" * 5000), ("--experts", "70000"), ("--tokens-per-step", "1" * 40)):
            result = subprocess.run([sys.executable, "-I", "read_recordings.py", "ids.npy", "--output", "x.npy",
                                     option, value], cwd=self.folder, capture_output=True, text=True)
            self.assertEqual(result.returncode, 2)
            self.assertIn("expected ", result.stderr)
            self.assertNotIn("Traceback", result.stderr)


class Ids(Case):
    IDS = numpy.array([[[0, 1], [3, 2]], [[0, -1], [3, 0]], [[2, 0], [1, 3]]])  # [tokens, layers, k]

    def test_counts(self):
        numpy.save(self.folder / "a.npy", self.IDS.astype(numpy.uint8).astype(numpy.int16))
        numpy.save(self.folder / "b.npy", self.IDS[:1])
        numpy.save(self.folder / "c.npy", self.IDS)
        loads, _ = self.read("c.npy", "--experts", 4)
        self.assert_loads(loads, [[[3, 1, 1, 0], [1, 1, 1, 3]]])
        loads, _ = self.read("c.npy", "b.npy", "--experts", 5, "--tokens-per-step", 2)
        self.assert_loads(loads, [[[2, 1, 0, 0, 0], [1, 0, 1, 2, 0]], [[1, 0, 1, 0, 0], [0, 1, 0, 1, 0]],
                                  [[1, 1, 0, 0, 0], [0, 0, 1, 1, 0]]])

    def routed(self, tokens, layers, experts, k, skew=0):
        """Ids [tokens, layers, k]; with a skew every layer prefers experts of its own."""
        rng = numpy.random.default_rng(3)
        scores = rng.gumbel(size=(tokens, layers, experts)) + skew * rng.normal(size=(layers, experts))
        return scores.argsort(axis=2)[:, :, :k].astype(numpy.int32)

    def test_rows_that_repeat_an_id_are_left_out(self):
        ids = self.routed(50, 6, 16, 3)
        expected = numpy.array([numpy.bincount(ids[:, layer].ravel(), minlength=16) for layer in range(6)])
        written = ids.copy()
        written[:, :2] = 0  # dense layers in a buffer that begins as zeros
        numpy.save(self.folder / "a.npy", written)
        loads, output = self.read("a.npy", "--experts", 16)
        self.assert_loads(loads[0, 2:], expected[2:])
        self.assertEqual(loads[0, :2].sum(), 0)
        self.assertEqual(output, "a.npy: left out rows that repeat an id, which no router chooses: "
                                 "50 of 50 in layers 0:2\nloads.npy: 1 steps, 6 layers, 16 experts\n"
                                 "only some layers have load: plan_experts --layers 2:6\n")
        written = ids.copy()
        written[-1] = 0  # a token that was not forwarded
        written[7, 3] = [5, -1, 5]
        written[8, 4] = [-1, 2, -1]  # of a token that one expert computes
        numpy.save(self.folder / "a.npy", written)
        loads, output = self.read("a.npy", "--experts", 16)
        kept = [numpy.delete(written[:, layer], [49] + [7] * (layer == 3), axis=0) for layer in range(6)]
        self.assert_loads(loads[0], [numpy.bincount(row[row >= 0], minlength=16) for row in kept])
        self.assertIn("chooses: 2 of 50 in layer 3; 1 of 50 in layers 0:3,4:6\n", output)
        written = ids.copy()
        written[:, ::2] = 0
        numpy.save(self.folder / "a.npy", written)
        self.assertTrue(self.read("a.npy", "--experts", 16)[1].endswith("only some layers have load: 1,3,5\n"))

    def test_one_choice_cannot_repeat(self):
        numpy.save(self.folder / "a.npy", numpy.zeros((4, 2, 1), int))
        loads, output = self.read("a.npy", "--experts", 2)
        self.assert_loads(loads, [[[4, 0], [4, 0]]])
        self.assertNotIn("left out", output)

    def test_the_order_of_the_dimensions(self):
        ids = self.routed(300, 5, 32, 4, skew=1)
        numpy.save(self.folder / "a.npy", ids)
        numpy.save(self.folder / "b.npy", ids.swapaxes(0, 1))
        expected, _ = self.read("a.npy", "--experts", 32)
        message = ("read_recordings: b.npy: expected top-k ids [tokens, layers, k], got [5, 300, 4], whose first "
                   "dimension seems to be the layers: give --axes layers,tokens,k, or --axes tokens,layers,k if it "
                   "is not")
        self.output.unlink()
        self.refused(message, "b.npy", "--experts", 32)
        loads, _ = self.read("b.npy", "--experts", 32, "--axes", "layers,tokens,k")
        self.assert_loads(loads, expected)
        self.assertEqual(self.read("b.npy", "--experts", 32, "--axes", "tokens,layers,k")[0].shape, (1, 300, 32))
        # Layers without experts of their own are counted as they are.
        numpy.save(self.folder / "a.npy", self.routed(300, 5, 32, 4))
        self.read("a.npy", "--experts", 32)
        numpy.save(self.folder / "a.npy", self.routed(2, 300, 32, 4))
        self.output.unlink()
        self.refused("[2, 300, 4], whose first dimension seems to be the layers", "a.npy", "--experts", 32)

    def test_refused(self):
        numpy.save(self.folder / "a.npy", self.IDS)
        start = "read_recordings: "
        for nothing in (numpy.full((4, 2, 2), -1), numpy.full((4, 2, 2), 3)):
            numpy.save(self.folder / "b.npy", nothing)
            self.refused(start + "b.npy: expected the ids of a routed token, got none: rows without an id, or with "
                         "one twice", "b.npy", "--experts", 4)
        self.refused(start + "--experts: expected the number of experts of a layer, to count a.npy, got none",
                     "a.npy")
        self.refused(start + "a.npy: expected ids from -1 (not routed) to 2, got 3", "a.npy", "--experts", 3)
        numpy.save(self.folder / "b.npy", self.IDS - 1)
        self.refused(start + "b.npy: expected ids from -1 (not routed) to 3, got -2", "b.npy", "--experts", 4)
        numpy.save(self.folder / "b.npy", self.IDS[0])
        self.refused(start + "b.npy: expected top-k ids [tokens, layers, k], got int64 [2, 2]", "b.npy",
                     "--experts", 4)
        numpy.save(self.folder / "b.npy", self.IDS[:, :1])
        self.refused(start + "b.npy: expected [layers, experts] of [2, 4], as in a.npy, got [1, 4]", "a.npy",
                     "b.npy", "--experts", 4)
        (self.folder / "b.npy").write_text("text")
        self.refused(start + "b.npy: expected a .npy file, got ", "b.npy", "--experts", 4)
        self.refused("--experts: expected a positive number, got 0", "a.npy", "--experts", 0)
        self.refused("--oldest: expected a row or unknown, got -1", "a.npy", "--oldest=-1")
        self.refused(start + "INPUT: expected files .pt or .csv of SGLang, ", "a.npy", "b.pt")
        self.refused(start + "INPUT: expected files .pt or .csv of SGLang, ", "a.txt")
        self.refused(start + "a.csv: expected it to be read or written, got No such file or directory", "a.csv")
        self.refused(start + "INPUT: expected files .pt or .csv of SGLang, ", ".", ".")


@unittest.skipUnless(os.environ.get("PLAN_EXPERTS"), "no PLAN_EXPERTS")
class Planned(Case):
    def test_plan_experts_reads_the_loads(self):
        numpy.save(self.folder / "ids.npy", numpy.arange(48).reshape(12, 2, 2) % 4)
        self.read("ids.npy", "--experts", 4, "--tokens-per-step", 4)
        plan = subprocess.run([os.environ["PLAN_EXPERTS"], "loads.npy", "--ranks", "2", "--slots", "6"],
                              cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(plan.returncode, 0, plan.stderr)
        self.assertIn("loads.npy, sum of 3 steps", plan.stdout)


if __name__ == "__main__":
    unittest.main()
