# SPDX-License-Identifier: Apache-2.0
"""Compares the plans of the package with the engines' own, and reads the files that its programs write.

PLAN_EXPERTS names the program that reads the files for the engines; without it, those cases are skipped.
"""

import argparse
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

import numpy
import reference_policies
from plimsoll_eplb import sglang, tensorrt_llm, vllm
from plimsoll_eplb.options import Options

try:
    import torch
except ImportError:
    torch = None

PLAN_EXPERTS = os.environ.get("PLAN_EXPERTS")
SHAPES = 500


class Case:
    """A random shape that the references accept, and loads: counts, counts with many ties, or weights."""

    def __init__(self, rng):
        self.nodes = int(rng.integers(1, 5))
        self.ranks = self.nodes * int(rng.integers(1, 5))
        self.groups = self.nodes * int(rng.integers(1, 4))
        if rng.random() < 0.3:
            self.groups = int(rng.integers(1, 9))
        self.experts = self.groups * int(rng.integers(1, 9))
        self.slots = self.ranks * (-(-self.experts // self.ranks) + int(rng.integers(4)))
        size = int(rng.integers(1, 4)), int(rng.integers(1, 4)), self.experts
        loads = rng.pareto(1.2, size)
        self.loads = [(1e5 * loads).astype(numpy.int64), (5 * loads).astype(numpy.int32),
                      loads.astype(numpy.float32)][rng.integers(3)]  # [steps, layers, experts]
        self.shape = self.slots, self.groups, self.nodes, self.ranks

    def balancedness(self, weight, slots_of):
        return reference_policies.balancedness(weight, self.slots, self.ranks, slots_of)


def shapes(seed):
    rng = numpy.random.default_rng(seed)
    return [(Case(rng), rng) for _ in range(SHAPES)]


class NotReached:
    """The engine's own policy, where ours must plan: an adapter takes it for what ours refuses."""

    asked = 0

    @staticmethod
    def rebalance_experts(*arguments):
        NotReached.asked += 1
        raise AssertionError

    __call__ = rebalance_experts


def vllm_planner(share=None):
    return vllm.Planner(NotReached, Options(max_moves_share=share), lambda: None)


def vllm_plan(weight, slots, groups, nodes, ranks, old=None, share=None):
    """Plans as the first call of a process."""
    return vllm_planner(share).rebalance_experts(weight, slots, groups, nodes, ranks, old)


def sglang_plan(*arguments, share=None, in_use=None, active=None):
    """Plans as SGLang asks for it, where `in_use` is its map, or None."""
    planner = sglang.Planner(NotReached(), Options(max_moves_share=share), lambda: in_use, lambda: active)
    return planner(*arguments)


class Adapter(unittest.TestCase):
    def tearDown(self):
        self.assertEqual(NotReached.asked, 0)

    def check_budget(self, case, in_use, got, share):
        """Demands a placement that the budget reaches."""
        for row in got:
            self.assertEqual(len(set(row.tolist())), case.experts)
        moves, _ = reference_policies.moves(in_use, got, case.ranks)
        self.assertLessEqual(moves, share * in_use.size)
        if share == 0:
            numpy.testing.assert_array_equal(got, in_use)

    def assert_as_good(self, case, weight, got, reference, distinct):
        """Demands equal maps of distinct plans, and equal balance of others; counts the former."""
        self.assertEqual((got.shape, got.dtype), (reference.shape, numpy.int64))
        if distinct:
            numpy.testing.assert_array_equal(got, reference, str(vars(case)))
        for row in got:
            self.assertEqual(len(set(row.tolist())), case.experts)
        numpy.testing.assert_allclose(case.balancedness(weight, got), case.balancedness(weight, reference),
                                      rtol=0, atol=1e-6, err_msg=str(vars(case)))
        return distinct


class Vllm(Adapter):
    def test_equals_the_default_policy(self):
        distinct = 0
        for case, _ in shapes(1):
            weight = case.loads[0]
            reference, is_distinct = reference_policies.vllm(weight, *case.shape)
            got = vllm_plan(weight, *case.shape)
            distinct += self.assert_as_good(case, weight, got, reference, is_distinct)
        self.assertGreater(distinct, SHAPES // 2)

    def test_moves_no_more_than_the_default_policy(self):
        fewer = 0
        for case, rng in shapes(2):
            weight = case.loads[0]
            old, _ = reference_policies.vllm(weight, *case.shape)
            later = (weight * numpy.exp(rng.normal(0, 0.5, weight.shape))).astype(weight.dtype)
            got = vllm_plan(later, *case.shape, old)
            reference, distinct = reference_policies.vllm(later, *case.shape, old)
            self.assert_as_good(case, later, got, reference, False)
            if not distinct:  # the plans themselves may differ
                plan = vllm_plan(later, *case.shape)
                reference = reference_policies.keep_slots(plan, old, case.ranks)
            its_moves = reference_policies.moves(old, got, case.ranks)
            reference_moves = reference_policies.moves(old, reference, case.ranks)
            self.assertLessEqual(its_moves[0], reference_moves[0], str(vars(case)))
            if its_moves[0] == reference_moves[0]:
                self.assertLessEqual(its_moves[1], reference_moves[1], str(vars(case)))
            fewer += its_moves[0] < reference_moves[0]
        self.assertGreater(fewer, SHAPES // 2)

    def test_groups_stay_on_their_nodes(self):
        for case, rng in shapes(3):
            if case.groups % case.nodes != 0:
                continue
            old, _ = reference_policies.vllm(case.loads[0], *case.shape)
            later = rng.permuted(case.loads[0], axis=1)
            got = vllm_plan(later, *case.shape, old)
            for row in got // (case.experts // case.groups):
                homes = [set(groups.tolist()) for groups in row.reshape(case.nodes, -1)]
                self.assertEqual(sum(map(len, homes)), case.groups, str(vars(case)))

    def test_other_maps_in_use(self):
        weight = numpy.array([[5, 1, 1, 1]])
        new = vllm_plan(weight, 6, 1, 1, 2)
        # Ranks have joined or left: there is nothing to align with.
        for old in (numpy.zeros((1, 9), int), numpy.zeros((1, 4), int)):
            numpy.testing.assert_array_equal(vllm_plan(weight, 6, 1, 1, 2, old), new)
        # A rank whose slots are empty.
        old = numpy.concatenate([new[:, 3:], numpy.full((1, 3), -1)], axis=1)
        got = vllm_plan(weight, 6, 1, 1, 2, old)
        numpy.testing.assert_array_equal(got[:, :3], new[:, 3:])

    def test_layers_without_load(self):
        weight = numpy.array([[900, 300, 250, 200, 140, 110, 60, 40], [0] * 8])
        fresh = vllm_plan(weight, 12, 1, 1, 4)
        numpy.testing.assert_array_equal(fresh[1], numpy.arange(12) % 8)
        old = numpy.array([[0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3], [7, 6, 5, 4, 3, 2, 1, 0, 7, 7, 7, 6]])
        numpy.testing.assert_array_equal(vllm_plan(weight, 12, 1, 1, 4, old)[1], old[1])
        old[1] = 0  # is no placement
        got = vllm_plan(weight, 12, 1, 1, 4, old)[1]
        self.assertEqual(set(got.tolist()), set(range(8)))
        assignments = tensorrt_llm.initial_global_assignments(weight, [3, 4], 12, 4)
        self.assertEqual(assignments[4], (numpy.arange(12) % 8).tolist())
        plan = sglang_plan(weight[None], 12, 3, 1, 1, "deepseek")[0]
        numpy.testing.assert_array_equal(plan[1], numpy.arange(12) % 8)

    @unittest.skipIf(torch is None, "no PyTorch")
    def test_tensors(self):
        weight = numpy.array([[50, 10, 11, 12], [1, 2, 30, 4]])
        new = vllm_plan(weight, 6, 1, 1, 2)
        old = numpy.roll(new, 3, axis=1).copy()
        got = vllm_plan(torch.from_numpy(weight), 6, 1, 1, 2, torch.from_numpy(old))
        self.assertIsInstance(got, torch.Tensor)
        self.assertEqual(got.dtype, torch.int64)
        numpy.testing.assert_array_equal(got.numpy(), old)

    def test_within_a_budget(self):
        better = 0
        for case, rng in shapes(6):
            in_use, _ = reference_policies.vllm(case.loads[0], *case.shape)
            planner = vllm_planner(share := (0, 0.1, 1)[rng.integers(3)])
            later = numpy.exp(rng.normal(0, 0.5, case.loads.shape[1:]))
            for step, loads in enumerate(case.loads):
                window = (loads * later).astype(loads.dtype)
                got = planner.rebalance_experts(window, *case.shape, in_use)
                self.check_budget(case, in_use, got, share)
                if step == 0:  # judged on the window that it was made from
                    before, after = (case.balancedness(window, map).mean() for map in (in_use, got))
                    self.assertGreaterEqual(after, before - 1e-6, str(vars(case)))
                    better += after > before
                in_use = got
        self.assertGreater(better, SHAPES // 4)

    def test_budget_without_a_placement_to_start_from(self):
        weight = numpy.array([[5, 1, 1, 1], [1, 2, 3, 4]])
        for old in (None, numpy.zeros((2, 8), int), numpy.array([[0, 1, 2, 3, 0, 1], [0, 1, 2, -1, -1, -1]])):
            numpy.testing.assert_array_equal(vllm_plan(weight, 6, 1, 1, 2, old, share=0),
                                             vllm_plan(weight, 6, 1, 1, 2, old))
        old = numpy.array([[0, 1, 2, 3, 0, 1]] * 2)
        numpy.testing.assert_array_equal(vllm_plan(0 * weight, 6, 1, 1, 2, old, share=1), old)  # no load


class Sglang(Adapter):
    def test_equals_deepseek(self):
        distinct = 0
        for case, _ in shapes(4):
            for name in ("deepseek", "deepseek_hierarchical"):
                hierarchical = name == "deepseek_hierarchical"
                if hierarchical and case.groups % case.nodes != 0:
                    continue
                slots_of, copies, is_distinct = reference_policies.sglang(case.loads, *case.shape,
                                                                          hierarchical)
                got = sglang_plan(
                    case.loads, case.slots, case.slots // case.ranks, case.groups, case.nodes,
                    types.SimpleNamespace(name=name))  # a member of an enumeration
                weight = case.loads.sum(axis=0)
                distinct += self.assert_as_good(case, weight, got[0], slots_of, is_distinct)
                if is_distinct:
                    numpy.testing.assert_array_equal(got[2], copies)
                self.check_inverse(*got)
        self.assertGreater(distinct, SHAPES // 2)

    def check_inverse(self, slots_of, lists, copies):
        self.assertEqual(lists.shape, (*copies.shape, copies.max()))
        for layer, expert in numpy.ndindex(copies.shape):
            where = numpy.flatnonzero(slots_of[layer] == expert)
            padding = [-1] * (copies.max() - len(where))
            self.assertEqual(lists[layer, expert].tolist(), [*where.tolist(), *padding])

    def test_within_a_budget(self):
        moved = 0
        for case, rng in shapes(7):
            in_use, _, _ = reference_policies.sglang(case.loads, *case.shape, False)
            later = (case.loads * numpy.exp(rng.normal(0, 0.5, case.loads.shape[1:]))).astype(case.loads.dtype)
            arguments = later, case.slots, case.slots // case.ranks, case.groups, case.nodes, "deepseek"
            for share in (0, 0.1, 1):
                got = sglang_plan(*arguments, share=share, in_use=in_use)
                self.check_budget(case, in_use, got[0], share)
                self.check_inverse(*got)
                moved += (got[0] != in_use).any()
            fresh = sglang_plan(*arguments)
            for got in (sglang_plan(*arguments, share=0.1),
                        sglang_plan(*arguments, share=0.1, in_use=numpy.zeros((1, 1), int))):
                for ours, theirs in zip(got, fresh):
                    numpy.testing.assert_array_equal(ours, theirs)
        self.assertGreater(moved, SHAPES // 4)

    def test_many_steps_are_summed(self):
        loads = numpy.random.default_rng(8).integers(0, 100, (16, 3, 8), numpy.int32)
        loads[:, :, 0] += 500
        in_use = numpy.tile(numpy.arange(12) % 8, (3, 1))
        expected = sglang_plan(loads, 12, 3, None, 1, "deepseek", share=0.2, in_use=in_use)
        self.assertTrue((expected[0] != in_use).any())
        many = numpy.repeat(loads, 3, axis=0)
        for ours, theirs in zip(sglang_plan(many, 12, 3, None, 1, "deepseek", share=0.2, in_use=in_use), expected):
            numpy.testing.assert_array_equal(ours, theirs)
        for idle in (0 * loads, loads[:0]):
            got = sglang_plan(idle, 12, 3, None, 1, "deepseek", share=1, in_use=in_use)
            numpy.testing.assert_array_equal(got[0], in_use)

    @unittest.skipIf(torch is None, "no PyTorch")
    def test_tensors(self):
        loads = numpy.array([[[50, 10, 11, 12]], [[1, 2, 30, 4]]], numpy.int32)
        expected = sglang_plan(loads, 6, 3, None, 1, "deepseek")
        got = sglang_plan(torch.from_numpy(loads), 6, 3, None, 1, "deepseek")
        in_use = numpy.array([[0, 1, 2, 3, 3, 3]])
        expected += sglang_plan(loads, 6, 3, None, 1, "deepseek", share=0.5, in_use=in_use)
        got += sglang_plan(torch.from_numpy(loads), 6, 3, None, 1, "deepseek", share=0.5,
                           in_use=torch.from_numpy(in_use))
        for tensor, array in zip(got, expected):
            self.assertEqual(tensor.dtype, torch.int64)
            numpy.testing.assert_array_equal(tensor.numpy(), array)

    def test_refused(self):
        loads = numpy.ones((1, 1, 4), int)
        for slots, ranks in ((12, 5), (24, 7), (30, 16), (4, 5), (12, 0)):
            with self.assertRaisesRegex(ValueError, "init_expert_location: num_physical_experts: expected a "
                                        f"multiple of the {ranks} ranks, got {slots}"):
                sglang.init_expert_location(loads, slots, ranks)


class File(unittest.TestCase):
    """The files that the programs write."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        rng = numpy.random.default_rng(5)
        self.loads = rng.integers(1, 1000, (3, 4, 8))  # [steps, layers, experts]
        self.weight = self.loads.sum(axis=0)

    def run_program(self, *command):
        result = subprocess.run([str(part) for part in command], cwd=self.folder, capture_output=True,
                                text=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def plan_experts_reads(self, file, planned, *arguments):
        """Lets plan_experts convert the plan to an array."""
        if not PLAN_EXPERTS:
            self.skipTest("no PLAN_EXPERTS")
        self.run_program(PLAN_EXPERTS, "loads.npy", "--plan", file, "--planner", "none", "--ranks", 3,
                         "--output", "again.npy", *arguments)
        numpy.testing.assert_array_equal(numpy.load(self.folder / "again.npy"), planned)

    def test_sglang(self):
        self.loads[:, 0] = 0  # a dense layer
        numpy.save(self.folder / "loads.npy", self.loads)
        flags = self.run_program(sys.executable, "-m", "plimsoll_eplb.sglang", "loads.npy", "--slots", 12,
                                 "--ranks", 3, "--output", "plan.json")
        self.assertEqual(flags, "--init-expert-location plan.json --ep-size 3 --ep-num-redundant-experts 4\n")
        content = json.loads((self.folder / "plan.json").read_text())
        # SGLang passes on every other key, which fails, and wants a row for each layer of the model.
        self.assertEqual(list(content), ["physical_to_logical_map"])
        planned = numpy.array(content["physical_to_logical_map"])
        self.assertEqual(planned[0].tolist(), [*range(8), *range(4)])
        reference, _, distinct = reference_policies.sglang(self.loads[:, 1:], 12, 1, 1, 3, False)
        self.assertTrue(distinct)
        numpy.testing.assert_array_equal(planned[1:], reference)
        self.plan_experts_reads("plan.json", planned[1:], "--layers", "1:")

    def test_sglang_groups(self):
        content = sglang.init_expert_location(self.loads, 12, 4, num_groups=4, num_nodes=2)
        reference, _, _ = reference_policies.sglang(self.loads, 12, 4, 2, 4, True)
        numpy.testing.assert_array_equal(content["physical_to_logical_map"], reference)

    def test_tensorrt_llm(self):
        numpy.save(self.folder / "loads.npy", self.loads)
        self.run_program(sys.executable, "-m", "plimsoll_eplb.tensorrt_llm", "loads.npy", "--layer-ids",
                         "3,5:8", "--num_slots", 12, "--ep_size", 3, "--output_path",
                         "moe_load_balancer.yaml")
        lines = (self.folder / "moe_load_balancer.yaml").read_text().splitlines()
        self.assertEqual([lines[0], lines[1], lines[-1]],
                         ["num_slots: 12", "initial_global_assignments:", "layer_updates_per_iter: 0"])
        assigned = [line.split(": ") for line in lines[2:-1]]
        self.assertEqual([key for key, _ in assigned], ["  3", "  5", "  6", "  7"])
        planned = numpy.array([json.loads(experts) for _, experts in assigned])
        reference, _ = reference_policies.vllm(self.weight, 12, 1, 1, 3)
        numpy.testing.assert_array_equal(planned, reference)
        self.plan_experts_reads("moe_load_balancer.yaml", planned, "--layer-ids", "3,5:8")

    def test_tensorrt_llm_refused(self):
        with self.assertRaisesRegex(ValueError, "num_slots: expected a multiple of the 3 ranks, got 10"):
            tensorrt_llm.initial_global_assignments(self.weight, range(4), 10, 3)
        with self.assertRaisesRegex(ValueError, "layers: expected 4 ids, as loads has rows, got 3"):
            tensorrt_llm.initial_global_assignments(self.weight, range(3), 12, 3)
        with self.assertRaisesRegex(ValueError, "layers: expected ids that increase, got .3, 3, 4, 5."):
            tensorrt_llm.initial_global_assignments(self.weight, [3, 3, 4, 5], 12, 3)
        self.assertEqual(tensorrt_llm.layer_ids("1:9:2,12,20:22"), [1, 3, 5, 7, 12, 20, 21])
        for text in ("", "x", "3,3", "5:3", "5:3,7", "1:9:0", "1:2:3:4", "3:", "-1"):
            with self.assertRaises(argparse.ArgumentTypeError, msg=text):
                tensorrt_llm.layer_ids(text)


if __name__ == "__main__":
    logging.disable()  # a line for each decision
    unittest.main()
