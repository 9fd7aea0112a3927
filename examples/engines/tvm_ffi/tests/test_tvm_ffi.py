# SPDX-License-Identifier: Apache-2.0
"""Compares plimsoll_ffi with DeepSeek's EPLB on the golden cases and with definitions in NumPy.

Golden cases are in the folders GOLDEN (separated by colons), each with a subfolder eplb. With ON_DEVICE, all
arrays are in the memory of a GPU.
"""

import ctypes
import gc
import os
import pathlib
import signal
import time
import unittest

import numpy as np
import tvm_ffi

ON_DEVICE = bool(os.environ.get("ON_DEVICE"))
if ON_DEVICE:
    import on_device as plimsoll_ffi
else:
    import plimsoll_ffi

try:
    import torch
except ImportError:
    torch = None


of_the_cpu = unittest.skipIf(ON_DEVICE, "about arrays of the CPU")


def golden_cases():
    for folder in os.environ["GOLDEN"].split(":"):
        for case in sorted((pathlib.Path(folder) / "eplb").iterdir()):
            lines = (case / "scalars.txt").read_text().split("\n")
            scalars = dict(line.split(" ", 1) for line in lines if line)
            arrays = {file.stem: np.load(file) for file in case.glob("*.npy")}
            yield case.name, scalars, arrays


def random_loads(steps, layers, experts, seed=0):
    rng = np.random.default_rng(seed)
    return np.floor(rng.pareto(1.2, (steps, layers, experts)) * 100).astype(np.int64)


def random_ids(tokens, k, experts, seed=0):
    rng = np.random.default_rng(seed)
    popularity = rng.pareto(1.0, experts) + 0.01
    rows = [rng.choice(experts, k, replace=False, p=popularity / popularity.sum()) for _ in range(tokens)]
    return np.array(rows, dtype=np.int32)


@of_the_cpu
class Threads(unittest.TestCase):
    def setUp(self):
        self.addCleanup(plimsoll_ffi.set_threads, 1)

    def plan(self):
        loads = random_loads(1, 20, 64)[0]
        return [result.tolist() for result in plimsoll_ffi.rebalance_experts(loads, 80, 1, 1, 16)]

    def test_any_number_of_threads_gives_the_same_plan(self):
        expected = self.plan()
        for threads in (2, 3, 1024):
            plimsoll_ffi.set_threads(threads)
            self.assertEqual(self.plan(), expected)

    def test_a_child_process_plans_as_its_parent(self):
        for threads in (1, 3):
            with self.subTest(threads):
                plimsoll_ffi.set_threads(threads)
                expected = self.plan()
                child = os.fork()
                if child == 0:
                    os._exit(0 if self.plan() == expected else 1)
                deadline = time.monotonic() + 30
                while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
                    time.sleep(0.01)
                if ended == (0, 0):
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                self.assertEqual(ended, (child, 0), "the child hangs or has another plan")

    def test_no_number_of_threads_is_refused(self):
        for threads in (0, -1, 1025):
            message = f"set_threads: threads: expected a whole number from 1 to 1024, got {threads}"
            with self.assertRaisesRegex(ValueError, message):
                plimsoll_ffi.set_threads(threads)


class Planners(unittest.TestCase):
    def check_placement(self, physical_to_logical, copies, slots):
        layers, experts = copies.shape
        self.assertEqual(physical_to_logical.dtype, np.int64)
        self.assertEqual(physical_to_logical.shape, (layers, slots))
        for row, numbers in zip(physical_to_logical, copies):
            np.testing.assert_array_equal(np.bincount(row[row >= 0], minlength=experts), numbers)
            self.assertGreaterEqual(numbers.min(), 1)

    def test_rebalance_experts_equals_deepseeks_on_the_golden_cases(self):
        compared = 0
        for name, scalars, golden in golden_cases():
            with self.subTest(name):
                weight = golden["weight"]
                shape = [int(scalars["params." + key]) for key in ("physical", "groups", "nodes", "gpus")]
                phy2log, log2phy, logcnt = plimsoll_ffi.rebalance_experts(weight, *shape)
                self.check_placement(phy2log, logcnt, shape[0])
                self.assertEqual(log2phy.shape, (*weight.shape, logcnt.max()))
                inverse = np.full_like(log2phy, -1)
                for layer, experts in enumerate(phy2log):
                    slots = np.argsort(experts, kind="stable")
                    first = np.cumsum(logcnt[layer]) - logcnt[layer]
                    inverse[layer, experts[slots], np.arange(len(slots)) - first[experts[slots]]] = slots
                np.testing.assert_array_equal(log2phy, inverse)
                if scalars["params.ties"] == "none":
                    np.testing.assert_array_equal(phy2log, golden["phy2log"])
                    np.testing.assert_array_equal(logcnt, golden["logcnt"])
                    self.assertEqual(log2phy.shape, golden["log2phy"].shape)
                    np.testing.assert_array_equal(np.sort(log2phy), np.sort(golden["log2phy"]))
                else:
                    ours, theirs = (
                        np.sort(np.take_along_axis(weight / counts, ids, axis=1))
                        for ids, counts in ((phy2log, logcnt), (golden["phy2log"], golden["logcnt"]))
                    )
                    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
                compared += 1
        self.assertGreaterEqual(compared, 6)

    def test_loads_of_every_type_and_layout_give_the_same(self):
        weight = random_loads(1, 3, 16)[0]
        expected = plimsoll_ffi.rebalance_experts(weight, 24, 4, 2, 8)
        views = [np.asfortranarray(weight), np.repeat(weight, 2, axis=1)[:, ::2]]
        for loads in [weight.astype(t) for t in ("int32", "float32", "float64")] + views:
            for ours, theirs in zip(plimsoll_ffi.rebalance_experts(loads, 24, 4, 2, 8), expected):
                np.testing.assert_array_equal(ours, theirs)

    def test_planners_place_every_expert(self):
        loads = random_loads(16, 3, 32)
        self.check_placement(*plimsoll_ffi.place_by_flow(loads, 40, 8), 40)
        *maps, planner = plimsoll_ffi.select_planner(loads, 40, 8, nodes=2)
        self.check_placement(*maps, 40)
        self.assertIn(planner, ("flow_optimal", "flow_even", "eplb", "eplb_shrunk", "eplb_spread"))
        active = np.array([1, 1, 0, 1, 1, 1, 1, 1], np.uint8)
        alive, copies = plimsoll_ffi.place_by_flow(loads, 48, 8, active=active, split_evenly=True)
        self.check_placement(alive, copies, 48)
        self.assertTrue((alive[:, 12:18] == -1).all())

    def test_craft_spends_its_budget_where_loads_are_uneven(self):
        loads = np.ones((4, 2, 16), np.int64)
        loads[:, 1, 3] = 100
        physical_to_logical, copies, offsets = plimsoll_ffi.craft(loads, 4, budget=4)
        self.check_placement(physical_to_logical, copies, 20)
        np.testing.assert_array_equal(offsets[:, -1], copies.sum(axis=1))
        self.assertEqual(offsets[0, -1], 16)
        self.assertEqual(copies[1, 3], copies[1].max())
        self.assertGreater(copies[1, 3], 1)

    def test_gem_gives_a_slow_rank_less(self):
        loads = np.full((4, 1, 8), 100, np.int64)
        loads[:, 0, :2] = 10
        latency = np.array([[3.0, 30, 300], [1, 10, 100], [1, 10, 100], [1, 10, 100]])
        physical_to_logical, copies = plimsoll_ffi.gem(loads, np.array([1, 100, 1000]), latency, 8, 4)
        self.check_placement(physical_to_logical, copies, 8)
        self.assertEqual(sorted(physical_to_logical[0, :2]), [0, 1])

    @of_the_cpu
    def test_new_arrays_come_from_the_callers_allocator(self):
        class Prototype(ctypes.Structure):  # the first members of DLTensor
            _fields_ = [
                ("data", ctypes.c_void_p),
                ("device", ctypes.c_int32 * 2),
                ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
            ]

        ffi = ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi())
        made = []

        @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Prototype), *[ctypes.c_void_p] * 3)
        def allocate(prototype, out, context, set_error):
            of = prototype.contents
            self.assertEqual((of.code, of.bits, list(of.device)), (0, 64, [1, 0]))
            made.append(np.empty(of.shape[: of.ndim], np.int64))
            tensor = tvm_ffi.from_dlpack(made[-1])
            return ffi.TVMFFITensorToDLPackVersioned(ctypes.c_void_p(tensor.__chandle__()), ctypes.c_void_p(out))

        weight = random_loads(1, 3, 16)[0]
        expected = plimsoll_ffi.rebalance_experts(weight, 24, 4, 2, 8)
        ffi.TVMFFIEnvSetDLPackManagedTensorAllocator(allocate, 0, None)
        try:
            ours = plimsoll_ffi.rebalance_experts(weight, 24, 4, 2, 8)
        finally:
            ffi.TVMFFIEnvSetDLPackManagedTensorAllocator(None, 0, None)
        self.assertEqual(len(made), 3)
        for array, theirs in zip(ours, expected):
            np.testing.assert_array_equal(array, theirs)
            self.assertTrue(any(np.array_equal(theirs, one) for one in made))

    def test_migrations_move_little_and_arrive(self):
        layers, experts, ranks, slots = 3, 16, 4, 24
        loads = random_loads(2, layers, experts)
        in_use, _ = plimsoll_ffi.place_by_flow(loads[:1], slots, ranks)
        next_map, copies = plimsoll_ffi.place_by_flow(loads[1:], slots, ranks)
        rank_of = np.arange(slots) // (slots // ranks)

        def moves(to):
            held = [set(zip(rank_of, row)) for row in in_use]
            return sum(len(set(zip(rank_of, row)) - old) for row, old in zip(to, held))

        aligned = plimsoll_ffi.align(in_use.astype(np.int32), next_map.astype(np.int32), experts, ranks)
        self.check_placement(aligned, copies, slots)
        self.assertLess(moves(aligned), moves(next_map))
        np.testing.assert_array_equal(plimsoll_ffi.align(in_use, in_use, experts, ranks), in_use)

        for budget in (0, 3):
            within, copies = plimsoll_ffi.plan_within(loads[1], in_use, next_map, ranks, max_moves=budget)
            self.check_placement(within, copies, slots)
            self.assertLessEqual(moves(within), budget)

        listed = plimsoll_ffi.plan_transfers(in_use, aligned, experts, ranks)
        self.assertEqual(listed.shape[1], 10)
        moved = np.array(in_use)
        for layer, expert, source_rank, source, rank, slot, *_ in listed:
            self.assertEqual((source_rank, rank), (rank_of[source], rank_of[slot]))
            moved[layer, slot] = expert
        np.testing.assert_array_equal(moved[aligned >= 0], aligned[aligned >= 0])
        self.assertEqual(len(plimsoll_ffi.plan_transfers(in_use, in_use, experts, ranks)), 0)

    def test_plan_within_takes_steps_or_one(self):
        layers, experts, ranks, slots = 3, 16, 4, 24
        loads = random_loads(6, layers, experts)
        in_use, copies_in_use = plimsoll_ffi.place_by_flow(loads[:1], slots, ranks, split_evenly=True)
        next_map, _ = plimsoll_ffi.place_by_flow(loads, slots, ranks, split_evenly=True)

        def plan(loads, **options):
            maps = plimsoll_ffi.plan_within(loads, in_use, next_map, ranks, split_evenly=True, **options)
            self.check_placement(*maps, slots)
            return maps[0]

        def balancedness(map):
            copies = np.array([np.bincount(row, minlength=experts) for row in map])
            shares = np.take_along_axis(loads / copies, np.broadcast_to(map, (len(loads), *map.shape)), axis=2)
            on_ranks = shares.reshape(len(loads), layers, ranks, -1).sum(axis=3)
            return (on_ranks.mean(axis=2) / on_ranks.max(axis=2)).mean()

        np.testing.assert_array_equal(plan(loads[:1], max_moves=4), plan(loads[0], max_moves=4))
        judged = [balancedness(plan(loads, max_moves=budget, validate=False)) for budget in (0, 2, 8, 72)]
        self.assertEqual(judged, sorted(judged))
        self.assertGreater(judged[-1], judged[0] + 0.01)
        for steps in (loads, loads[0]):
            within, copies = plimsoll_ffi.plan_within(steps, in_use, next_map, ranks, max_moves=0)
            np.testing.assert_array_equal(within, in_use)
            np.testing.assert_array_equal(copies, copies_in_use)

        # Steps without load do not count, also where they are the first half.
        idle = np.zeros((7, layers, experts), np.int64)
        expected = plan(loads, max_moves=8)
        np.testing.assert_array_equal(plan(np.concatenate([idle, loads]), max_moves=8), expected)
        for steps in (idle, idle[0]):
            np.testing.assert_array_equal(plan(steps), in_use)

        # Steps that differ by noise alone give no reason to move, unless the plan is judged on the same steps.
        loads = np.random.default_rng(1).poisson(100, (8, layers, experts))
        in_use, _ = plimsoll_ffi.place_by_flow(np.ones((1, layers, experts)), slots, ranks, split_evenly=True)
        np.testing.assert_array_equal(plan(loads), in_use)
        self.assertTrue((plan(loads, validate=False) != in_use).any())

    @of_the_cpu
    def test_messages_name_function_argument_and_both_values(self):
        weight = random_loads(1, 2, 12)[0]
        slots = np.array([[0, 1], [1, 0]])
        steps = np.ones((3, 2, 2))
        steps[2, 1, 0] = np.nan
        for message, call in [
            (
                "rebalance_experts: weight: expected float32, float64, int32 or int64 [layers, experts] on cpu:0, "
                "got int8 [2, 12] on cpu:0",
                lambda: plimsoll_ffi.rebalance_experts(weight.astype(np.int8), 16, 4, 2, 8),
            ),
            (
                "place_by_flow: loads: expected float32, float64, int32 or int64 [steps, layers, experts] on cpu:0, "
                "got int64 [2, 12] on cpu:0",
                lambda: plimsoll_ffi.place_by_flow(weight, 16, 8),
            ),
            (
                "rebalance_experts: num_replicas: expected at least one slot for each of 12 experts, got 11 slots",
                lambda: plimsoll_ffi.rebalance_experts(weight, 11, 4, 2, 8),
            ),
            (
                "rebalance_experts: num_replicas: expected at most 32767 slots for each of 12 experts, got "
                "1099511627776 slots",
                lambda: plimsoll_ffi.rebalance_experts(weight, 2**40, 1, 1, 8),
            ),
            (
                "rebalance_experts: expected an array of integers or floats, got complex128",
                lambda: plimsoll_ffi.rebalance_experts(weight.astype(complex), 16, 1, 1, 8),
            ),
            (
                "craft: options.budget: expected -1 to 9223372036854775807 replicas (-1: automatic), got -2",
                lambda: plimsoll_ffi.craft(weight[None], 8, budget=-2),
            ),
            (
                "plan_within: options.max_moves: expected 0 to 9223372036854775807 moves, got -1",
                lambda: plimsoll_ffi.plan_within(weight[:, :2], slots, slots, 2, max_moves=-1),
            ),
            (
                "plan_within: loads: expected float32, float64, int32 or int64 [steps, layers, experts] or "
                "[layers, experts] on cpu:0, got int64 [12] on cpu:0",
                lambda: plimsoll_ffi.plan_within(weight[0], slots, slots, 2),
            ),
            (
                "plan_within: in_use: expected -1 or an expert of the layer, got 7 in layer 1, slot 0",
                lambda: plimsoll_ffi.plan_within(weight[:, :2], slots + np.array([[0], [6]]), slots, 2),
            ),
            (
                "plan_within: loads: expected values from 0 to below 2^47, got NaN in layer 1, expert 0, step 2",
                lambda: plimsoll_ffi.plan_within(steps, slots, slots, 2),
            ),
            (
                "place_by_flow: active: expected uint8 [ranks] on cpu:0, got int64 [8] on cpu:0",
                lambda: plimsoll_ffi.place_by_flow(weight[None], 16, 8, active=np.ones(8, np.int64)),
            ),
            (
                "validate: replica_count: expected 1 copies, as in physical_to_logical, got 2 in layer 0, expert 0",
                lambda: plimsoll_ffi.lplb(np.array([[0, 1]]), np.array([[2, 1]]), 2, 8),
            ),
            (
                "lplb: replica_count: expected int64 [layers, experts] on cpu:0, got int32 [1, 2] on cpu:0",
                lambda: plimsoll_ffi.lplb(np.array([[0, 1]]), np.array([[2, 1]], np.int32), 2, 8),
            ),
        ]:
            with self.assertRaises(ValueError) as refused:
                call()
            self.assertEqual(str(refused.exception), message)

    @of_the_cpu
    def test_lists_and_arrays_that_dlpack_cannot_pass_are_copied(self):
        weight = random_loads(1, 3, 16)[0].astype(np.float32)
        expected = plimsoll_ffi.rebalance_experts(weight, 20, 1, 1, 4)
        read_only = weight.copy()
        read_only.flags.writeable = False
        for kind in (read_only, weight.astype(">f4"), weight.tolist(), tuple(map(tuple, weight.tolist()))):
            for ours, theirs in zip(plimsoll_ffi.rebalance_experts(kind, 20, 1, 1, 4), expected):
                np.testing.assert_array_equal(ours, theirs)
        planned = plimsoll_ffi.rebalance_experts(weight[:, ::-1].copy(), 20, 1, 1, 4)[0]
        aligned = plimsoll_ffi.align(expected[0], planned, 16, 4)
        np.testing.assert_array_equal(plimsoll_ffi.align(expected[0].tolist(), planned.astype(">i8"), 16, 4), aligned)
        alive = np.array([1, 1, 1, 1, 0], np.uint8)
        masked = plimsoll_ffi.place_by_flow(weight[None], 20, 5, active=alive)
        for ours, theirs in zip(plimsoll_ffi.place_by_flow(weight[None], 20, 5, active=alive == 1), masked):
            np.testing.assert_array_equal(ours, theirs)
        # What is written to, or comes every step, is not copied in silence.
        balancer = plimsoll_ffi.lplb(expected[0].tolist(), expected[2].tolist(), 4, 64)
        ids = np.zeros((4, 2), np.int32)
        for call in (
            lambda: balancer.dispatch(0, ids, np.broadcast_to(ids[:1], (4, 2))),
            lambda: balancer.dispatch(0, ids, ids.tolist()),
            lambda: balancer.plan(np.ones((3, 16), ">i4")),
        ):
            with self.assertRaisesRegex(ValueError, "^lplb[.]"):
                call()
        for number in (16.5, "16", 2**70, None):
            with self.assertRaisesRegex(ValueError, "^rebalance_experts: "):
                plimsoll_ffi.rebalance_experts(weight, number, 1, 1, 4)
        for nothing in (None, "loads", 3):
            with self.assertRaisesRegex(ValueError, "^rebalance_experts: expected an array first, got "):
                plimsoll_ffi.rebalance_experts(nothing, 20, 1, 1, 4)
        with self.assertRaisesRegex(ValueError, "^like: expected an array, got list"):
            plimsoll_ffi.capacity_mask([1], 16, 2, 64)


class ReplanGate(unittest.TestCase):
    """Four steps on two ranks. In layer 0 experts 0 and 1 are busy and share a rank; layer 1 is balanced."""

    loads = np.array([[[30, 30, 10, 10], [10, 10, 10, 10]]] * 4)
    in_use = np.array([[0, 1, 2, 3], [0, 1, 2, 3]])
    next = np.array([[0, 2, 1, 3], [0, 1, 2, 3]])  # moves an expert to each rank

    def judge(self, **changed):
        tensors = {name: changed.pop(name, getattr(self, name)) for name in ("loads", "in_use", "next")}
        options = {
            "horizon": 100, "expert_bytes": 10, "launch": 5, "per_token": 1, "per_expert": 2, "flat_below": 10,
            "local_copy_bandwidth": 4, "same_node_bandwidth": 2, "across_nodes_bandwidth": 1, "layer_stall": 3,
        }
        return plimsoll_ffi.decide_replan(*tensors.values(), changed.pop("ranks", 2), **{**options, **changed})

    def check(self, expected, complete=False, **changed):
        judged = self.judge(**changed)
        if complete:
            self.assertEqual(list(judged), list(expected))
        for name, value in expected.items():
            if name.endswith("answer"):
                self.assertEqual(judged[name], value)
            else:
                np.testing.assert_allclose(judged[name], value, rtol=1e-14, atol=1e-14, err_msg=name)
                self.assertEqual(np.shape(judged[name]), np.shape(value))

    def test_results_are_those_of_the_definition(self):
        # In layer 0, 60 tokens of 2 experts take 5 + 50 + 4 s, and 40 of them 5 + 30 + 4; in layer 1, 20 take 19.
        self.check(
            {
                "answer": "move",
                "layer_answer": ["move", "keep"],
                "gain": (1 - 40 / 60) / 2,
                "layer_gain": [1 - 40 / 60, 0],
                "gain_seconds": 59 - 39,
                "layer_gain_seconds": [59 - 39, 0],
                "standard_error": 20 / 7**0.5,  # of four samples of 20 s and four of 0
                "layer_standard_error": [0, 0],
                "move_seconds": 10 / 2 + 3,
                "layer_move_seconds": [10 / 2 + 3, 0],
                "break_even_steps": 1,
                "layer_break_even_steps": [1, 0],
                "steps": 4,
                "balancedness": (40 / 60 + 1) / 2,
                "step_seconds": 59 + 19,
                "possible_seconds": 20,
            },
            complete=True,
        )

    def test_every_option_has_its_effect(self):
        copies = np.array([[0, 1, 0, 2]])  # experts 0 to 2 have 30, 20 and 10 tokens
        steps = np.array([[[30, 20, 10]]] * 4)
        maps = {"in_use": np.array([[0, 1, 2]]), "next": np.array([[1, 2, 0]])}
        ring = {"loads": np.array([[[1, 1, 1]]] * 4), **maps, "ranks": 3}
        dead = {"in_use": [[0, 1, 2, 3, -1, -1]] * 2, "next": [[0, 2, 1, 3, -1, -1], [0, 1, 2, 3, -1, -1]]}
        dead = {"ranks": 3, **{name: np.array(map) for name, map in dead.items()}}
        active = np.array([1, 1, 0], np.uint8)
        for changed, expected in [
            ({"launch": 6}, {"step_seconds": 80}),
            ({"per_token": 2}, {"gain_seconds": 40}),
            ({"per_expert": 3}, {"step_seconds": 82}),
            ({"flat_below": 50}, {"gain_seconds": 10}),
            ({"expert_bytes": 20}, {"move_seconds": 20 / 2 + 3}),
            ({"same_node_bandwidth": 1}, {"move_seconds": 10 / 1 + 3}),
            ({"nodes": 2}, {"move_seconds": 10 / 1 + 3}),
            ({"nodes": 2, "across_nodes_bandwidth": 0.5}, {"move_seconds": 10 / 0.5 + 3}),
            ({"next": self.in_use[:, [1, 0, 2, 3]]}, {"move_seconds": 2 * (2 * 10 / 4 + 3)}),
            ({"transfer_share": 0.5}, {"move_seconds": 10 / 2 / 2 + 3}),
            ({"layer_stall": 1995}, {"answer": "keep", "break_even_steps": 100}),
            ({"layer_stall": 1995, "horizon": 101}, {"answer": "move"}),
            ({"least_steps": 5}, {"layer_answer": ["insufficient_evidence", "keep"]}),
            ({"standard_errors": 3}, {"answer": "insufficient_evidence", "layer_answer": ["move", "keep"]}),
            ({"enough_balancedness": 0.83}, {"answer": "keep", "layer_answer": ["move", "keep"]}),
            ({"enough_balancedness": 0.84}, {"answer": "move"}),
            ({"loads": steps, "in_use": copies, "next": copies}, {"step_seconds": 5 + 20 + 4}),
            ({"loads": steps, "in_use": copies, "next": copies, "split_evenly": True}, {"step_seconds": 5 + 25 + 4}),
            (ring, {"move_seconds": 3 * 10 / 2 + 3}),
            ({**ring, "one_peer": False}, {"move_seconds": 10 / 2 + 3}),
            (dead, {"layer_gain": [80 / 3 / 40 - 80 / 3 / 60, 0]}),
            ({**dead, "active": active}, {"layer_gain": [1 - 40 / 60, 0]}),
        ]:
            with self.subTest(changed):
                self.check(expected, **changed)

    def test_plans_of_halves_are_judged_on_the_other_half(self):
        # The plan in use has 40 tokens on each rank in every step. Each plan of a half has 60 in the other half.
        loads = np.array([[[30, 30, 10, 10]]] * 2 + [[[30, 10, 30, 10]]] * 2)
        in_use, of_first, of_second = (np.array([row]) for row in ([0, 3, 1, 2], [0, 2, 1, 3], [0, 1, 2, 3]))
        maps = {"loads": loads, "in_use": in_use, "next": of_first}
        self.check({"gain_seconds": -10, "answer": "keep", "break_even_steps": float("inf")}, **maps)
        halves = {"of_first_half": of_first, "of_second_half": of_second}
        self.check({"gain_seconds": -20, "standard_error": 0}, **maps, **halves)
        halves = {"of_first_half": of_second, "of_second_half": of_first}
        self.check({"gain_seconds": 0, "standard_error": 0}, **maps, **halves)
        halves = {"of_first_half": in_use, "of_second_half": of_second}
        self.check({"gain_seconds": -10}, **maps, **halves)
        halves = {"of_first_half": of_first, "of_second_half": in_use}
        self.check({"gain_seconds": -10}, **maps, **halves)

    def test_without_load_or_with_few_steps_there_is_no_evidence(self):
        nothing = {"gain": 0, "gain_seconds": 0, "standard_error": 0, "layer_gain_seconds": [0, 0]}
        in_use = {"steps": 0, "balancedness": 1, "step_seconds": 0, "possible_seconds": 0}
        idle = 0 * self.loads
        self.check({"answer": "insufficient_evidence", "move_seconds": 8, **nothing, **in_use}, loads=idle)
        self.check({"answer": "keep", "move_seconds": 0, **nothing, **in_use}, loads=idle, next=self.in_use)
        self.check({"answer": "insufficient_evidence", "steps": 3, "gain_seconds": 20}, loads=self.loads[:3])
        self.check({"answer": "move", "steps": 3}, loads=self.loads[:3], least_steps=3)
        with_idle = np.concatenate([idle, self.loads])  # steps without load do not count
        self.check({"answer": "move", "steps": 4, "gain_seconds": 20}, loads=with_idle)
        self.check({"answer": "keep", "step_seconds": 78, "break_even_steps": 0}, next=self.in_use)

    def test_maps_and_loads_of_every_type_give_the_same(self):
        expected = self.judge()
        of_types = [self.loads.astype(type) for type in ("int32", "float32", "float64")]
        for loads in [*of_types, np.asfortranarray(self.loads)]:
            self.check(expected, loads=loads, complete=True)
        self.check(expected, in_use=self.in_use.astype(np.int32), next=self.next.astype(np.int32), complete=True)

    @of_the_cpu
    def test_messages_name_function_argument_and_both_values(self):
        wide = np.concatenate([self.next, self.next], axis=1)
        for changed, message in [
            ({"horizon": 0}, "options.horizon: expected 1 to 9007199254740992 steps, got 0"),
            ({"expert_bytes": 0}, "options.expert_bytes: expected 1 to 1152921504606846975 bytes, got 0"),
            ({"per_token": -1}, "options.cost.per_token: expected a number from 0 to below 2^960, got -1"),
            ({"launch": float("nan")}, "options.cost.launch: expected a number from 0 to below 2^960, got NaN"),
            ({"same_node_bandwidth": 0}, "options.bandwidths.same_node: expected a number above 0, got 0"),
            ({"transfer_share": 1.5}, "options.transfer_share: expected a number from 0 to 1, got 1.5"),
            ({"least_steps": 0}, "options.least_steps: expected 1 to 2147483647 steps, got 0"),
            (
                {"loads": self.loads[0]},
                "loads: expected float32, float64, int32 or int64 [steps, layers, experts] on cpu:0, "
                "got int64 [2, 4] on cpu:0",
            ),
            (
                {"loads": -self.loads},
                "loads: expected values from 0 to below 2^47, got -30 in layer 0, expert 0, step 0",
            ),
            ({"loads": self.loads[:, :1]}, "loads: expected 2 layers, as in in_use, got 1"),
            ({"next": wide}, "next.physical_to_logical: expected 4 slots, as in in_use, got 8"),
            ({"next": self.next + 1}, "next: expected -1 or an expert of the layer, got 4 in layer 0, slot 3"),
            (
                {"in_use": 0 * self.in_use},
                "in_use.physical_to_logical: expected every expert on a live rank, got none in layer 0, expert 1",
            ),
            (
                {"of_first_half": self.next},
                "of_second_half: expected a plan, since there is one of the other half, got none",
            ),
            (
                {"of_first_half": self.next, "of_second_half": self.next[:1]},
                "of_second_half.physical_to_logical: expected 2 layers, as in in_use, got 1",
            ),
            ({"active": self.in_use[0]}, "active: expected uint8 [ranks] on cpu:0, got int64 [4] on cpu:0"),
            ({"ranks": 0}, "ranks: expected 1 to 32767 ranks, got 0"),
        ]:
            with self.assertRaises(ValueError) as refused:
                self.judge(**changed)
            self.assertEqual(str(refused.exception), "decide_replan: " + message)


class Objects(unittest.TestCase):
    def test_lplb_meets_its_quotas_and_reaches_the_mean(self):
        ids = random_ids(512, 4, 32).astype(np.int64)
        loads = np.bincount(ids.ravel(), minlength=32)
        maps = plimsoll_ffi.place_by_flow(np.stack([loads[::-1], loads])[None], 48, 8)
        balancer = plimsoll_ffi.lplb(*maps, 8, ids.size)
        counts = np.zeros((2, 32), np.int32)
        balancer.count(ids, counts[1])
        np.testing.assert_array_equal(counts[1], loads)
        balancer.plan(counts)
        slots = np.empty_like(ids)
        balancer.dispatch(1, ids, slots)
        balancer.check()
        np.testing.assert_array_equal(maps[0][1][slots], ids)
        np.testing.assert_array_equal(np.bincount(slots.ravel(), minlength=48), balancer.quotas[1])
        self.assertEqual(np.bincount(slots.ravel() // 6).max(), ids.size // 8)

        quotas = balancer.quotas
        kept = quotas.copy()
        del balancer
        gc.collect()
        np.testing.assert_array_equal(quotas, kept)  # they keep the object alive

    def test_lost_token_copies_are_counted_and_refused(self):
        balancer = plimsoll_ffi.lplb(np.array([[0, 1, 0, 2, 1, 3]]), np.array([[2, 2, 1, 1]]), 3, 64)
        ids = np.array([[0, 1, 4], [2, -1, 4], [0, 3, 4]], np.int32)  # 4 is no expert
        counts = np.zeros((1, 4), np.int32)
        balancer.count(ids, counts[0])
        balancer.plan(counts)
        balancer.check()
        slots = np.empty_like(ids)
        balancer.dispatch(0, ids, slots)
        self.assertEqual(
            balancer.counters(),
            {"routed": 5, "beyond_quota": 0, "without_slot": 0, "unrouted": 1, "out_of_range": 3},
        )
        message = (
            "^lplb.dispatch: topk_ids: expected ids that can be placed, or -1, got 3 out_of_range; "
            r"check\(allow_lost=True\) accepts them$"
        )
        with self.assertRaisesRegex(ValueError, message):
            balancer.check()
        balancer.check(allow_lost=True)
        ids[:, 2] = -1
        balancer.dispatch(0, ids, slots)
        balancer.check()

        mask = plimsoll_ffi.capacity_mask(ids, 4, 3, 3)
        ids[0, 2] = 9
        outputs = np.empty_like(ids), np.empty(ids.shape, np.float32), np.empty(4, np.int32)
        mask.apply(ids, np.ones(ids.shape, np.float32), *outputs)
        self.assertEqual(mask.counters()["out_of_range"], 1)
        with self.assertRaisesRegex(ValueError, "^capacity_mask.apply: topk_ids: .*, got 1 out_of_range"):
            mask.check()

        filler = plimsoll_ffi.waterfill(ids, 0, 2, 6, 3, 3)
        loads, filled = np.zeros((2, 2), np.int64), np.empty((3, 4), np.int32)
        filler.count(ids, loads)
        filler.fill(ids, loads, filled, None, None)
        self.assertEqual((filler.counters()["rows"], filler.counters()["out_of_range"]), (3, 1))
        with self.assertRaisesRegex(ValueError, "^waterfill.fill: topk_ids: .*, got 1 out_of_range"):
            filler.check()

        planner = plimsoll_ffi.least_loaded(ids, 0, 2, 4, 64)
        counts = np.zeros((2, 4), np.int32)
        planner.count(ids, counts[0])
        planner.plan(counts)
        planner.route(ids, np.empty_like(ids), np.empty_like(ids))
        self.assertEqual(planner.counters(), {"routed": 5, "unplanned": 0, "unrouted": 3, "out_of_range": 1})
        with self.assertRaisesRegex(ValueError, "^least_loaded.route: topk_ids: .*, got 1 out_of_range"):
            planner.check()
        planner.check(allow_lost=True)

    def test_lplb_takes_another_placement(self):
        ids = random_ids(512, 4, 32).astype(np.int64)
        loads = np.bincount(ids.ravel(), minlength=32)
        before = plimsoll_ffi.place_by_flow(loads[None, None, ::-1], 48, 8)
        after = plimsoll_ffi.place_by_flow(loads[None, None], 48, 8)
        self.assertFalse(np.array_equal(before[0], after[0]))
        balancer = plimsoll_ffi.lplb(*before, 8, ids.size)
        quotas = balancer.quotas
        balancer.update(*after, None)
        balancer.plan(loads[None].astype(np.int32))
        quotas = balancer.quotas if ON_DEVICE else quotas  # there it is a copy
        slots = np.empty_like(ids)
        balancer.dispatch(0, ids, slots)
        balancer.check()
        np.testing.assert_array_equal(after[0][0][slots], ids)
        fresh = plimsoll_ffi.lplb(*after, 8, ids.size)
        fresh.plan(loads[None].astype(np.int32))
        np.testing.assert_array_equal(quotas, fresh.quotas)  # at the address of before
        bad = after[0].copy()
        bad[0, 5] = 32
        with self.assertRaises(ValueError):
            balancer.update(bad, after[1], None)
        balancer.plan(loads[None].astype(np.int32))
        balancer.check()
        np.testing.assert_array_equal(quotas, fresh.quotas)

    def test_lplb_takes_the_offsets_of_craft(self):
        loads = random_loads(4, 2, 16)
        physical_to_logical, copies, offsets = plimsoll_ffi.craft(loads, 4, budget=6)
        balancer = plimsoll_ffi.lplb(physical_to_logical, copies, 4, 64, rank_offsets=offsets)
        balancer.plan(loads[0].astype(np.int32))
        balancer.check()
        np.testing.assert_array_equal(balancer.quotas.sum(axis=1), loads[0].sum(axis=1))
        with self.assertRaisesRegex(ValueError, "^lplb::plan: counts: expected 2 layers, got 1"):
            balancer.plan(np.zeros((1, 16), np.int32))
        with self.assertRaisesRegex(ValueError, r"^lplb.plan: counts: expected int32 \[layers, experts\]"):
            balancer.plan(np.zeros((2, 16), np.int64))

    def test_waterfill_evens_out_the_ranks(self):
        ranks, tokens, top_k = 4, 256, 2
        batches = [random_ids(tokens, top_k, 16, seed) for seed in range(ranks)]
        objects = [
            plimsoll_ffi.waterfill(batches[r], r, ranks, 16, top_k, tokens, to_all_ranks=True) for r in range(ranks)
        ]
        loads = np.zeros((2, ranks), np.int64)
        for one, ids in zip(objects, batches):
            part = np.empty_like(loads)
            one.count(ids, part)
            loads += part
        np.testing.assert_array_equal(loads[0], np.bincount(np.concatenate(batches).ravel() // 4, minlength=ranks))
        rows = np.zeros(ranks, np.int64)
        weights = np.full((tokens, top_k), 0.25, np.float32)
        for one, ids in zip(objects, batches):
            filled = np.empty((tokens, top_k + 1), np.int32)
            filled_weights = np.empty((tokens, top_k + 1), np.float32)
            one.fill(ids, loads, filled, weights, filled_weights)
            one.check()
            self.assertTrue((filled_weights[:, :top_k] == 0.25).all() and (filled_weights[:, top_k] == 1).all())
            rows += np.bincount(filled[:, top_k] // 5, minlength=ranks)  # each rank has a fifth slot
        level = -(-int(loads.sum()) // ranks)
        self.assertEqual((loads[0] + rows).max(), max(level, loads[0].max()))

    def test_waterfill_takes_other_slots(self):
        ranks, tokens, top_k = 4, 256, 2
        ids = random_ids(tokens, top_k, 16)
        filler = plimsoll_ffi.waterfill(ids, 0, ranks, 16, top_k, tokens, to_all_ranks=True)

        def step(of, step_ids):
            loads, filled = np.empty((2, ranks), np.int64), np.empty((tokens, top_k + 1), np.int32)
            of.count(step_ids, loads)
            of.fill(step_ids, loads, filled, None, None)
            return loads, filled

        even = step(filler, ids)
        # Rank 3 has failed, and the others hold its slots.
        offsets, active = np.array([0, 3, 10, 16, 16], np.int32), np.array([1, 1, 1, 0], np.uint8)
        filler.update(offsets, active)
        loads, filled = step(filler, ids)
        filler.check()
        owners = np.searchsorted(offsets, ids, side="right") - 1
        np.testing.assert_array_equal(filled[:, :top_k], ids + owners)
        np.testing.assert_array_equal(loads[0], np.bincount(owners.ravel(), minlength=ranks))
        shared = offsets[1:] + np.arange(ranks)
        self.assertTrue(np.isin(filled[:, top_k], shared[:3]).all())
        rows = (filled[:, top_k, None] == shared).sum(axis=0)
        self.assertEqual((loads[0] + rows).max(), max(-(-int(loads.sum()) // 3), loads[0].max()))

        # What is refused changes nothing.
        filler.update(np.array([0, 3, 10, 17, 17], np.int32), None)
        with self.assertRaisesRegex(ValueError, "^waterline::update: rank_offsets: "):
            filler.check()
        np.testing.assert_array_equal(step(filler, ids)[1], filled)
        with self.assertRaisesRegex(ValueError, "^waterline::update: rank_offsets: expected 5 offsets"):
            filler.update(offsets[:4].copy(), None)
        with self.assertRaisesRegex(ValueError, r"^waterfill.update: rank_offsets: expected int32 \[ranks \+ 1\]"):
            filler.update(offsets.astype(np.int64), None)

        filler.update(None, np.ones(ranks, np.uint8))
        for array, expected in zip(step(filler, ids), even):
            np.testing.assert_array_equal(array, expected)
        filler.check()

    def test_capacity_mask_keeps_the_best_of_each_expert(self):
        tokens, top_k, experts = 100, 3, 8
        ids = random_ids(tokens, top_k, experts)
        scores = np.random.default_rng(1).permutation(tokens * top_k).reshape(tokens, top_k).astype(np.float32)
        mask = plimsoll_ffi.capacity_mask(ids, experts, top_k, tokens, factor=1.25)
        kept, kept_scores = np.empty_like(ids), np.empty_like(scores)
        counts = np.empty(experts, np.int32)
        mask.apply(ids, scores, kept, kept_scores, counts)
        capacity = int(np.ceil(1.25 * tokens * top_k / experts))
        for expert in range(experts):
            offered = np.sort(scores[ids == expert])[::-1]
            np.testing.assert_array_equal(np.sort(kept_scores[kept == expert])[::-1], offered[:capacity])
            self.assertEqual(counts[expert], min(len(offered), capacity))
        self.assertTrue((kept_scores[kept == -1] == 0).all() and (counts == capacity).any())

    def test_least_loaded_spills_to_the_mean(self):
        ranks, experts, tokens, k = 4, 8, 128, 2
        batches = [random_ids(tokens, k, experts, 7 + seed) % 5 for seed in range(ranks)]  # most on ranks 0 and 1
        objects = [
            plimsoll_ffi.least_loaded(ids, r, ranks, experts, ids.size, min_chunk=1, threshold=1.0)
            for r, ids in enumerate(batches)
        ]
        counts = np.zeros((ranks, experts), np.int32)
        for r, ids in enumerate(batches):
            objects[r].count(ids, counts[r])
        arrived = np.zeros(ranks, np.int64)
        for r, ids in enumerate(batches):
            objects[r].plan(counts)
            objects[r].check()
            destinations, rows = np.empty_like(ids), np.empty_like(ids)
            objects[r].route(ids, destinations, rows)
            sent = np.bincount(destinations.ravel(), minlength=ranks)
            np.testing.assert_array_equal(sent, objects[r].send_counts[r])
            np.testing.assert_array_equal(np.sort(rows.ravel()), np.arange(ids.size))
            arrived += sent
        np.testing.assert_array_equal(arrived, objects[0].receive_counts.sum(axis=1))
        np.testing.assert_array_equal(objects[0].receive_counts, objects[0].send_counts.T)
        self.assertEqual(arrived.max(), tokens * k)
        transfers = objects[0].transfers[: objects[0].transfer_offsets[-1]]
        self.assertGreater(len(transfers), 0)
        np.testing.assert_array_equal(transfers[:, 1], transfers[:, 0] * ranks // experts)

    def test_least_loaded_takes_other_homes(self):
        ranks, experts, tokens, k = 4, 8, 128, 2
        ids = random_ids(tokens, k, experts) % 5
        counts = np.zeros((ranks, experts), np.int32)

        def make():
            return plimsoll_ffi.least_loaded(ids, 1, ranks, experts, ids.size, min_chunk=1, threshold=1.0, max_slots=10)

        def step(of):
            destinations, rows = np.empty_like(ids), np.empty_like(ids)
            of.count(ids, counts[1])
            of.plan(counts)
            of.route(ids, destinations, rows)
            transfers = of.transfers[: of.transfer_offsets[-1]]
            return destinations, rows, np.array(transfers), np.array(of.send_counts)

        planner = make()
        sends = planner.send_counts
        before = step(planner)
        # Rank 3 has failed; two experts have two homes.
        slots = np.array([3, 0, 5, 6, 1, 0, 2, 4, 7, 1], np.int32)
        offsets, active = np.array([0, 4, 5, 10, 10], np.int32), np.array([1, 1, 1, 0], np.uint8)
        planner.update(slots, offsets, active)
        destinations, _, transfers, sent = step(planner)
        planner.check()
        self.assertTrue(ON_DEVICE or np.array_equal(sends, sent))  # at the address of before
        self.assertLess(destinations.max(), 3)
        self.assertEqual(np.bincount(destinations.ravel()).max(), -(-ids.size // 3))
        self.assertGreater(len(transfers), 0)
        for expert, home, to in transfers[:, :3]:
            self.assertIn(expert, slots[offsets[home] : offsets[home + 1]])
            self.assertNotIn(expert, slots[offsets[to] : offsets[to + 1]])

        # What is refused changes nothing: here expert 7 has no home.
        planner.update(np.where(slots == 7, 0, slots).astype(np.int32), offsets, None)
        with self.assertRaisesRegex(ValueError, "^least_loaded::update: .* got none, expert 7"):
            planner.check()
        np.testing.assert_array_equal(step(planner)[0], destinations)
        with self.assertRaisesRegex(ValueError, "^least_loaded::update: homes.residents.physical_to_logical: .*, got 11"):
            planner.update(np.zeros(11, np.int32), None, None)
        with self.assertRaisesRegex(ValueError, r"^least_loaded.update: physical_to_logical: expected int32 \[slots\]"):
            planner.update(slots.astype(np.int64), offsets, None)

        planner.update(np.arange(experts, dtype=np.int32), None, np.ones(ranks, np.uint8))
        for array, fresh, expected in zip(step(planner), step(make()), before):
            np.testing.assert_array_equal(array, fresh)
            np.testing.assert_array_equal(array, expected)
        planner.check()


@unittest.skipIf(torch is None or ON_DEVICE, "no PyTorch, or one without CUDA")
class PyTorch(unittest.TestCase):
    def test_tensors_give_what_arrays_give(self):
        weight = random_loads(1, 3, 16)[0]
        expected = plimsoll_ffi.rebalance_experts(weight, 24, 4, 2, 8)
        ours = plimsoll_ffi.rebalance_experts(torch.from_numpy(weight), 24, 4, 2, 8)
        for array, tensor in zip(expected, ours):
            self.assertIsInstance(tensor, torch.Tensor)
            self.assertEqual(tensor.dtype, torch.int64)
            np.testing.assert_array_equal(tensor.numpy(), array)
        ids = torch.from_numpy(random_ids(64, 2, 16))
        slots, counts = torch.empty_like(ids), torch.empty((3, 16), dtype=torch.int32)
        balancer = plimsoll_ffi.lplb(ours[0], ours[2], 8, ids.numel())
        for layer in range(3):
            balancer.count(ids, counts[layer])
        balancer.plan(counts)
        balancer.dispatch(1, ids, slots)
        self.assertIsInstance(balancer.quotas, torch.Tensor)
        self.assertTrue(bool((ours[0][1][slots.long()] == ids).all()))
        judged = plimsoll_ffi.decide_replan(
            torch.from_numpy(weight)[None], ours[0], ours[0], 8, horizon=1, expert_bytes=1, per_token=1.0
        )
        self.assertEqual(judged["answer"], "keep")
        self.assertTrue(torch.equal(judged["layer_gain_seconds"], torch.zeros(3, dtype=torch.float64)))


if __name__ == "__main__":
    unittest.main()
