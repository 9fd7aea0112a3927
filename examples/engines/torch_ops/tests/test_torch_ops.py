# SPDX-License-Identifier: Apache-2.0
"""test_torch_ops.py LIBRARY: compares the operators with DeepSeek's EPLB on the golden cases and with
definitions, and shapes on meta tensors with those on the CPU.

Golden cases are in the folders GOLDEN (separated by colons), each with a subfolder eplb.
"""

import os
import pathlib
import signal
import sys
import time
import unittest

import numpy as np
import torch

plimsoll = torch.ops.plimsoll


def golden_cases():
    for folder in os.environ["GOLDEN"].split(":"):
        for case in sorted((pathlib.Path(folder) / "eplb").iterdir()):
            lines = (case / "scalars.txt").read_text().split("\n")
            scalars = dict(line.split(" ", 1) for line in lines if line)
            arrays = {file.stem: torch.from_numpy(np.load(file)) for file in case.glob("*.npy")}
            yield case.name, scalars, arrays


def random_loads(*shape, seed=0):
    loads = np.random.default_rng(seed).pareto(1.2, shape) * 100
    return torch.from_numpy(np.floor(loads).astype(np.int64))


def random_ids(tokens, k, experts, seed=0):
    generator = torch.Generator().manual_seed(seed)
    popularity = (torch.arange(experts) + 1.0) ** -1
    return torch.multinomial(popularity.expand(tokens, experts), k, generator=generator)


class Threads(unittest.TestCase):
    def setUp(self):
        self.addCleanup(plimsoll.set_threads, 1)

    def plan(self):
        loads = random_loads(20, 64)
        return [result.tolist() for result in plimsoll.rebalance_experts(loads, 80, 1, 1, 16)]

    def test_any_number_of_threads_gives_the_same_plan(self):
        expected = self.plan()
        for threads in (2, 3, 1024):
            plimsoll.set_threads(threads)
            self.assertEqual(self.plan(), expected)

    def test_a_child_process_plans_as_its_parent(self):
        for threads in (1, 3):
            with self.subTest(threads):
                plimsoll.set_threads(threads)
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
            with self.assertRaisesRegex((RuntimeError, ValueError), message):
                plimsoll.set_threads(threads)


class Planners(unittest.TestCase):
    def check_placement(self, physical_to_logical, copies):
        self.assertEqual(physical_to_logical.dtype, torch.int64)
        for row, numbers in zip(physical_to_logical, copies):
            counted = torch.bincount(row[row >= 0], minlength=len(numbers))
            self.assertTrue(torch.equal(counted, numbers) and numbers.min() >= 1)

    def test_rebalance_experts_equals_deepseeks_on_the_golden_cases(self):
        compared = 0
        for name, scalars, golden in golden_cases():
            if scalars["params.ties"] != "none":
                continue
            with self.subTest(name):
                shape = [int(scalars["params." + key]) for key in ("physical", "groups", "nodes", "gpus")]
                phy2log, log2phy, logcnt = plimsoll.rebalance_experts(golden["weight"], *shape)
                self.assertTrue(torch.equal(phy2log, golden["phy2log"].long()))
                self.assertTrue(torch.equal(logcnt, golden["logcnt"].long()))
                width = logcnt.max()
                self.assertTrue((log2phy[:, :, width:] == -1).all())
                ours, theirs = log2phy[:, :, :width].sort().values, golden["log2phy"].long().sort().values
                self.assertTrue(torch.equal(ours, theirs))
                compared += 1
        self.assertGreaterEqual(compared, 4)

    def test_planners_place_every_expert(self):
        loads = random_loads(16, 3, 32)
        self.check_placement(*plimsoll.place_by_flow(loads, 40, 8))
        physical_to_logical, copies, chosen = plimsoll.select_planner(loads, 40, 8, 2)
        self.check_placement(physical_to_logical, copies)
        self.assertIn(chosen.item(), range(5))
        physical_to_logical, copies, offsets = plimsoll.craft(loads, 8, 8)
        self.check_placement(physical_to_logical, copies)
        self.assertTrue(torch.equal(offsets[:, -1], copies.sum(1)))
        active = torch.tensor([1, 1, 0, 1, 1, 1, 1, 1], dtype=torch.uint8)
        alive, copies = plimsoll.place_by_flow(loads, 48, 8, active=active, split_evenly=True)
        self.check_placement(alive, copies)
        self.assertTrue((alive[:, 12:18] == -1).all())
        tokens = torch.tensor([1, 100, 1000])
        latency = torch.tensor([[3.0, 30, 300], [1, 10, 100], [1, 10, 100], [1, 10, 100]], dtype=torch.float64)
        steps = torch.full((4, 1, 8), 100)
        steps[:, 0, :2] = 10
        physical_to_logical, copies = plimsoll.gem(steps, tokens, latency, 8, 4)
        self.check_placement(physical_to_logical, copies)
        self.assertEqual(sorted(physical_to_logical[0, :2].tolist()), [0, 1])  # the slow rank's

    def test_loads_of_every_type_and_layout_give_the_same(self):
        weight = random_loads(3, 16)
        expected = plimsoll.rebalance_experts(weight, 24, 4, 2, 8)
        types = (torch.int32, torch.float32, torch.float64)
        for loads in [weight.to(t) for t in types] + [weight.t().contiguous().t()]:
            for ours, theirs in zip(plimsoll.rebalance_experts(loads, 24, 4, 2, 8), expected):
                self.assertTrue(torch.equal(ours, theirs))

    def test_migrations_move_little_and_arrive(self):
        layers, experts, ranks, slots = 3, 16, 4, 24
        loads = random_loads(2, layers, experts)
        in_use, _ = plimsoll.place_by_flow(loads[:1], slots, ranks)
        next_map, copies = plimsoll.place_by_flow(loads[1:], slots, ranks)
        rank_of = [slot * ranks // slots for slot in range(slots)]

        def moves(to):
            pairs = [[set(zip(rank_of, row)) for row in map.tolist()] for map in (in_use, to)]
            return sum(len(new - old) for old, new in zip(*pairs))

        aligned = plimsoll.align(in_use.int(), next_map.int(), experts, ranks)
        self.check_placement(aligned, copies)
        self.assertLess(moves(aligned), moves(next_map))
        for budget in (0, 3):
            within, copies = plimsoll.plan_within(loads[1], in_use, next_map, ranks, max_moves=budget)
            self.check_placement(within, copies)
            self.assertLessEqual(moves(within), budget)
        moved = in_use.clone()
        for layer, expert, source_rank, source, rank, slot, *_ in plimsoll.plan_transfers(
            in_use, aligned, experts, ranks
        ).tolist():
            self.assertEqual((source_rank, rank), (rank_of[source], rank_of[slot]))
            moved[layer, slot] = expert
        self.assertTrue(torch.equal(moved[aligned >= 0], aligned[aligned >= 0]))

    def test_plan_within_takes_steps_or_one(self):
        ranks, slots = 4, 24
        loads = random_loads(6, 3, 16)
        in_use, copies_in_use = plimsoll.place_by_flow(loads[:1], slots, ranks)
        next_map, _ = plimsoll.place_by_flow(loads, slots, ranks)

        def plan(loads, in_use=in_use, **options):
            maps = plimsoll.plan_within(loads, in_use, next_map, ranks, split_evenly=True, **options)
            self.check_placement(*maps)
            return maps[0]

        self.assertTrue(torch.equal(plan(loads[:1], max_moves=4), plan(loads[0], max_moves=4)))
        for steps in (loads, loads[0], torch.zeros_like(loads)):
            within, copies = plimsoll.plan_within(steps, in_use, next_map, ranks, max_moves=0 if steps.any() else 72)
            self.assertTrue(torch.equal(within, in_use) and torch.equal(copies, copies_in_use))
        idle = torch.cat([torch.zeros_like(loads), loads])  # steps without load do not count
        self.assertTrue(torch.equal(plan(idle, max_moves=8), plan(loads, max_moves=8)))

        # Steps that differ by noise alone give no reason to move, unless the plan is judged on the same steps.
        noise = torch.from_numpy(np.random.default_rng(1).poisson(100, (8, 3, 16)))
        even, _ = plimsoll.place_by_flow(torch.ones(1, 3, 16), slots, ranks, split_evenly=True)
        self.assertTrue(torch.equal(plan(noise, even), even))
        self.assertFalse(torch.equal(plan(noise, even, validate=False), even))

    def test_meta_tensors_have_the_shapes_of_results(self):
        loads = random_loads(4, 3, 16)
        tokens, latency = torch.tensor([1, 1000]), torch.ones(8, 2, dtype=torch.float64)
        maps = plimsoll.place_by_flow(loads, 24, 8)[0]
        options_of_gate = {"horizon": 1, "expert_bytes": 1, "per_token": 1}
        for operator, inputs, numbers, *options in [
            (plimsoll.rebalance_experts, [loads[0]], [24, 4, 2, 8]),
            (plimsoll.place_by_flow, [loads], [24, 8]),
            (plimsoll.select_planner, [loads], [24, 8]),
            (plimsoll.craft, [loads], [8, 8]),
            (plimsoll.gem, [loads, tokens, latency], [24, 8]),
            (plimsoll.align, [maps, maps], [16, 8]),
            (plimsoll.plan_within, [loads[0], maps, maps], [8]),
            (plimsoll.plan_within, [loads, maps, maps], [8]),
            (plimsoll.decide_replan, [loads, maps, maps], [8], options_of_gate),
        ]:
            options = options[0] if options else {}
            real = operator(*inputs, *numbers, **options)
            meta = operator(*(tensor.to("meta") for tensor in inputs), *numbers, **options)
            if isinstance(real, torch.Tensor):
                real, meta = [real], [meta]
            elif isinstance(real, dict):
                self.assertEqual(list(meta), list(real))
                real, meta = list(real.values()), list(meta.values())
            self.assertEqual(len(meta), len(real))
            for ours, theirs in zip(meta, real):
                self.assertEqual(ours.device.type, "meta")
                self.assertEqual((ours.shape, ours.stride(), ours.dtype), (theirs.shape, theirs.stride(), theirs.dtype))

    def test_messages_name_function_argument_and_both_values(self):
        weight = random_loads(2, 12)
        slots = torch.tensor([[0, 1], [1, 0]])
        steps = torch.ones(3, 2, 2)
        steps[2, 1, 0] = np.nan
        for message, call in [
            (
                "rebalance_experts: weight: expected Float, Double, Int or Long [layers, experts] on cpu, "
                "got Char [2, 12] on cpu",
                lambda: plimsoll.rebalance_experts(weight.to(torch.int8), 16, 4, 2, 8),
            ),
            (
                "place_by_flow: loads: expected Float, Double, Int or Long [steps, layers, experts] on cpu, "
                "got Long [2, 12] on cpu",
                lambda: plimsoll.place_by_flow(weight, 16, 8),
            ),
            (
                "rebalance_experts: num_replicas: expected at least 12, got 11",
                lambda: plimsoll.rebalance_experts(weight, 11, 4, 2, 8),
            ),
            (
                "craft: ranks: expected at least 0, got -20",
                lambda: plimsoll.craft(weight[None].to("meta"), -20),
            ),
            (
                "craft: options.budget: expected -1 to 9223372036854775807 replicas (-1: automatic), got -2",
                lambda: plimsoll.craft(weight[None], 8, -2),
            ),
            (
                "plan_within: options.max_moves: expected 0 to 9223372036854775807 moves, got -1",
                lambda: plimsoll.plan_within(weight[:, :2], slots, slots, 2, max_moves=-1),
            ),
            (
                "plan_within: loads: expected Float, Double, Int or Long [steps, layers, experts] or [layers, experts] "
                "on cpu, got Long [12] on cpu",
                lambda: plimsoll.plan_within(weight[0], slots, slots, 2),
            ),
            (
                "plan_within: loads: expected 2 or 3 dimensions, got 1",
                lambda: plimsoll.plan_within(weight[0].to("meta"), slots.to("meta"), slots.to("meta"), 2),
            ),
            (
                "plan_within: in_use: expected -1 or an expert of the layer, got 7 in layer 1, slot 0",
                lambda: plimsoll.plan_within(weight[:, :2], slots + torch.tensor([[0], [6]]), slots, 2),
            ),
            (
                "decide_replan: loads: expected 3 dimensions, got 2",
                lambda: plimsoll.decide_replan(
                    weight.to("meta"), slots.to("meta"), slots.to("meta"), 2, horizon=1, expert_bytes=1, per_token=1
                ),
            ),
            (
                "plan_within: loads: expected values from 0 to below 2^47, got NaN in layer 1, expert 0, step 2",
                lambda: plimsoll.plan_within(steps, slots, slots, 2),
            ),
            (
                "place_by_flow: active: expected Byte [ranks] on cpu, got Long [8] on cpu",
                lambda: plimsoll.place_by_flow(weight[None], 16, 8, active=torch.ones(8, dtype=torch.long)),
            ),
            (
                "validate: replica_count: expected 1 copies, as in physical_to_logical, got 2 in layer 0, expert 0",
                lambda: plimsoll.lplb(torch.tensor([[0, 1]]), torch.tensor([[2, 1]]), 2, None, 8),
            ),
        ]:
            with self.assertRaises((ValueError, RuntimeError)) as refused:
                call()
            self.assertEqual(str(refused.exception).split("\n")[0], message)


class ReplanGate(unittest.TestCase):
    """Four steps on two ranks. In layer 0 experts 0 and 1 are busy and share a rank; layer 1 is balanced."""

    loads = torch.tensor([[[30, 30, 10, 10], [10, 10, 10, 10]]] * 4)
    in_use = torch.tensor([[0, 1, 2, 3], [0, 1, 2, 3]])
    next = torch.tensor([[0, 2, 1, 3], [0, 1, 2, 3]])  # moves an expert to each rank

    def judge(self, **changed):
        tensors = {name: changed.pop(name, getattr(self, name)) for name in ("loads", "in_use", "next")}
        options = {
            "horizon": 100, "expert_bytes": 10, "launch": 5, "per_token": 1, "per_expert": 2, "flat_below": 10,
            "local_copy_bandwidth": 4, "same_node_bandwidth": 2, "across_nodes_bandwidth": 1, "layer_stall": 3,
        }
        return plimsoll.decide_replan(*tensors.values(), changed.pop("ranks", 2), **{**options, **changed})

    def check(self, expected, complete=False, **changed):
        judged = self.judge(**changed)
        if complete:
            self.assertEqual(list(judged), list(expected))
        for name, value in expected.items():
            if name.endswith("answer") and not torch.is_tensor(value):
                names = ["keep", "move", "insufficient_evidence"]
                value = list(map(names.index, value)) if isinstance(value, list) else names.index(value)
            is_number = name.endswith("answer") or name == "steps"
            value = torch.as_tensor(value, dtype=torch.int64 if is_number else torch.float64)
            torch.testing.assert_close(judged[name], value, rtol=1e-14, atol=1e-14)

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
        copies = torch.tensor([[0, 1, 0, 2]])  # experts 0 to 2 have 30, 20 and 10 tokens
        steps = torch.tensor([[[30, 20, 10]]] * 4)
        maps = {"in_use": torch.tensor([[0, 1, 2]]), "next": torch.tensor([[1, 2, 0]])}
        ring = {"loads": torch.tensor([[[1, 1, 1]]] * 4), **maps, "ranks": 3}
        dead = {"in_use": [[0, 1, 2, 3, -1, -1]] * 2, "next": [[0, 2, 1, 3, -1, -1], [0, 1, 2, 3, -1, -1]]}
        dead = {"ranks": 3, **{name: torch.tensor(map) for name, map in dead.items()}}
        active = torch.tensor([1, 1, 0], dtype=torch.uint8)
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
        loads = torch.tensor([[[30, 30, 10, 10]]] * 2 + [[[30, 10, 30, 10]]] * 2)
        in_use, of_first, of_second = (torch.tensor([row]) for row in ([0, 3, 1, 2], [0, 2, 1, 3], [0, 1, 2, 3]))
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
        with_idle = torch.cat([idle, self.loads])  # steps without load do not count
        self.check({"answer": "move", "steps": 4, "gain_seconds": 20}, loads=with_idle)
        self.check({"answer": "keep", "step_seconds": 78, "break_even_steps": 0}, next=self.in_use)

    def test_maps_and_loads_of_every_type_give_the_same(self):
        expected = self.judge()
        of_types = [self.loads.to(type) for type in (torch.int32, torch.float32, torch.float64)]
        for loads in [*of_types, self.loads.mT.contiguous().mT]:
            self.check(expected, loads=loads, complete=True)
        self.check(expected, in_use=self.in_use.int(), next=self.next.int(), complete=True)

    def test_messages_name_function_argument_and_both_values(self):
        wide = torch.cat([self.next, self.next], dim=1)
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
                "loads: expected Float, Double, Int or Long [steps, layers, experts] on cpu, got Long [2, 4] on cpu",
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
            ({"active": self.in_use[0]}, "active: expected Byte [ranks] on cpu, got Long [4] on cpu"),
            ({"ranks": 0}, "ranks: expected 1 to 32767 ranks, got 0"),
        ]:
            with self.assertRaises((ValueError, RuntimeError)) as refused:
                self.judge(**changed)
            self.assertEqual(str(refused.exception).split("\n")[0], "decide_replan: " + message)


class Objects(unittest.TestCase):
    def test_lplb_takes_another_placement(self):
        ids = random_ids(512, 4, 32)
        loads = torch.bincount(ids.flatten(), minlength=32)
        before = plimsoll.place_by_flow(loads.flip(0)[None, None], 48, 8)
        after = plimsoll.place_by_flow(loads[None, None], 48, 8)
        balancer = plimsoll.lplb(*before, 8, None, ids.numel())
        quotas = balancer.quotas()
        balancer.update(*after, None)
        plimsoll.lplb_plan(balancer, loads[None].int())
        balancer.check()
        fresh = plimsoll.lplb(*after, 8, None, ids.numel())
        plimsoll.lplb_plan(fresh, loads[None].int())
        self.assertTrue(torch.equal(quotas, fresh.quotas()))  # at the address of before

    def test_lplb_meets_its_quotas_and_reaches_the_mean(self):
        ids = random_ids(512, 4, 32)
        loads = torch.bincount(ids.flatten(), minlength=32)
        history = torch.stack([loads.flip(0), loads])[None]
        physical_to_logical, copies = plimsoll.place_by_flow(history, 48, 8)
        balancer = plimsoll.lplb(physical_to_logical, copies, 8, None, ids.numel())
        counts, slots = torch.zeros(2, 32, dtype=torch.int32), torch.empty_like(ids)
        plimsoll.lplb_count(balancer, ids, counts[1])
        self.assertTrue(torch.equal(counts[1].long(), loads))
        plimsoll.lplb_plan(balancer, counts)
        plimsoll.lplb_dispatch(balancer, 1, ids, slots)
        balancer.check()
        self.assertTrue(torch.equal(physical_to_logical[1][slots], ids))
        quotas = balancer.quotas()
        del balancer  # its memory stays
        self.assertTrue(torch.equal(torch.bincount(slots.flatten(), minlength=48), quotas[1].long()))
        self.assertEqual(torch.bincount(slots.flatten() // 6).max(), ids.numel() // 8)

    def test_lost_token_copies_are_counted_and_refused(self):
        maps = torch.tensor([[0, 1, 0, 2, 1, 3]]), torch.tensor([[2, 2, 1, 1]])
        balancer = plimsoll.lplb(*maps, 3, None, 64)
        ids = torch.tensor([[0, 1, 4], [2, -1, 4], [0, 3, 4]])  # 4 is no expert
        counts = torch.zeros(1, 4, dtype=torch.int32)
        plimsoll.lplb_count(balancer, ids, counts[0])
        plimsoll.lplb_plan(balancer, counts)
        plimsoll.lplb_dispatch(balancer, 0, ids, torch.empty_like(ids))
        self.assertEqual(
            dict(balancer.counters()),
            {"routed": 5, "beyond_quota": 0, "without_slot": 0, "unrouted": 1, "out_of_range": 3},
        )
        with self.assertRaisesRegex((ValueError, RuntimeError), "lplb.dispatch: topk_ids: .*, got 3 out_of_range"):
            balancer.check()
        balancer.check(allow_lost=True)

        mask = plimsoll.capacity_mask(ids, 4, 3, 3, 1.0)
        outputs = torch.empty_like(ids), torch.empty(ids.shape), torch.empty(4, dtype=torch.int32)
        plimsoll.capacity_mask_apply(mask, ids, torch.ones(ids.shape), *outputs)
        self.assertEqual(mask.counters()["out_of_range"], 3)
        with self.assertRaisesRegex((ValueError, RuntimeError), "capacity_mask.apply: topk_ids: .*, got 3 out_of_range"):
            mask.check()

        planner = plimsoll.least_loaded(ids, 0, 2, 1, 4, 64, 1.0, 1, 1.0)
        counts = torch.zeros(2, 4, dtype=torch.int32)
        plimsoll.least_loaded_count(planner, ids, counts[0])
        plimsoll.least_loaded_plan(planner, counts)
        plimsoll.least_loaded_route(planner, ids, torch.empty_like(ids), torch.empty_like(ids))
        self.assertEqual(dict(planner.counters())["out_of_range"], 3)
        with self.assertRaisesRegex((ValueError, RuntimeError), "least_loaded.route: topk_ids: .*, got 3 out_of_range"):
            planner.check()
        planner.check(allow_lost=True)

    def test_steps_on_meta_tensors_do_nothing(self):
        balancer = plimsoll.lplb(torch.tensor([[0, 1]]), torch.tensor([[1, 1]]), 2, None, 8)
        meta = torch.empty(4, 2, dtype=torch.long, device="meta")
        plimsoll.lplb_count(balancer, meta, torch.empty(2, dtype=torch.int32, device="meta"))
        plimsoll.lplb_dispatch(balancer, 0, meta, torch.empty_like(meta))

    def test_waterfill_evens_out_the_ranks(self):
        ranks, tokens, top_k = 4, 256, 2
        batches = [random_ids(tokens, top_k, 16, seed) for seed in range(ranks)]
        objects = [plimsoll.waterfill(batches[r], r, ranks, 1, 16, top_k, tokens, 1.0, True) for r in range(ranks)]
        loads, part = torch.zeros(2, ranks, dtype=torch.long), torch.empty(2, ranks, dtype=torch.long)
        for one, ids in zip(objects, batches):
            plimsoll.waterfill_count(one, ids, part)
            loads += part
        rows = torch.zeros(ranks, dtype=torch.long)
        for one, ids in zip(objects, batches):
            filled = torch.empty(tokens, top_k + 1, dtype=torch.long)
            weights = torch.empty(tokens, top_k + 1)
            plimsoll.waterfill_fill(one, ids, loads, filled, torch.full((tokens, top_k), 0.25), weights)
            one.check()
            self.assertTrue((weights[:, :top_k] == 0.25).all() and (weights[:, top_k] == 1).all())
            rows += torch.bincount(filled[:, top_k] // 5, minlength=ranks)  # each rank has a fifth slot
        self.assertEqual((loads[0] + rows).max(), max(-(-loads.sum() // ranks), loads[0].max()))

    def test_waterfill_takes_other_slots(self):
        ranks, tokens, top_k = 4, 256, 2
        ids = random_ids(tokens, top_k, 16)
        filler = plimsoll.waterfill(ids, 0, ranks, 1, 16, top_k, tokens, 1.0, True)

        def step():
            loads, filled = torch.empty(2, ranks, dtype=torch.long), torch.empty(tokens, top_k + 1, dtype=torch.long)
            plimsoll.waterfill_count(filler, ids, loads)
            plimsoll.waterfill_fill(filler, ids, loads, filled)
            return loads, filled

        even = step()
        # Rank 3 has failed, and the others hold its slots.
        offsets = torch.tensor([0, 3, 10, 16, 16], dtype=torch.int32)
        filler.update(offsets, torch.tensor([1, 1, 1, 0], dtype=torch.uint8))
        loads, filled = step()
        filler.check()
        owners = torch.bucketize(ids, offsets[1:].long(), right=True)
        self.assertTrue(torch.equal(filled[:, :top_k], ids + owners))
        rows = (filled[:, top_k, None] == offsets[1:] + torch.arange(ranks)).sum(0)
        self.assertEqual(rows.sum(), tokens)
        self.assertEqual(rows[3], 0)
        self.assertEqual((loads[0] + rows).max(), max(-(-loads.sum() // 3), loads[0].max()))

        filler.update(offsets + torch.tensor([0, 0, 0, 1, 1], dtype=torch.int32))  # 17 slots
        with self.assertRaisesRegex((ValueError, RuntimeError), "waterline::update: rank_offsets: "):
            filler.check()
        self.assertTrue(torch.equal(step()[1], filled))  # what is refused changes nothing
        filler.update(None, torch.ones(ranks, dtype=torch.uint8))
        for tensor, expected in zip(step(), even):
            self.assertTrue(torch.equal(tensor, expected))
        filler.check()

    def test_capacity_mask_keeps_the_best_of_each_expert(self):
        tokens, top_k, experts = 96, 2, 8
        ids = random_ids(tokens, top_k, experts)
        scores = torch.randperm(ids.numel()).reshape(ids.shape).float()
        mask = plimsoll.capacity_mask(ids, experts, top_k, tokens, 1.25)
        kept, kept_scores = torch.empty_like(ids), torch.empty_like(scores)
        counts = torch.empty(experts, dtype=torch.int32)
        plimsoll.capacity_mask_apply(mask, ids, scores, kept, kept_scores, counts)
        for expert in range(experts):
            offered = scores[ids == expert].sort(descending=True).values[:30]  # 1.25 * 96 * 2 / 8
            self.assertTrue(torch.equal(kept_scores[kept == expert].sort(descending=True).values, offered))
            self.assertEqual(counts[expert], len(offered))
        self.assertTrue((kept == -1).any())

    def test_least_loaded_spills_to_the_mean(self):
        ranks, experts, tokens, k = 4, 8, 128, 2
        batches = [random_ids(tokens, k, experts, seed) % 5 for seed in range(ranks)]  # most on ranks 0 and 1
        objects = [
            plimsoll.least_loaded(ids, r, ranks, 1, experts, ids.numel(), 1.0, 1, 1.0) for r, ids in enumerate(batches)
        ]
        counts = torch.zeros(ranks, experts, dtype=torch.int32)
        for r, ids in enumerate(batches):
            plimsoll.least_loaded_count(objects[r], ids, counts[r])
        arrived = torch.zeros(ranks, dtype=torch.long)
        for r, ids in enumerate(batches):
            plimsoll.least_loaded_plan(objects[r], counts)
            objects[r].check()
            destinations, rows = torch.empty_like(ids), torch.empty_like(ids)
            plimsoll.least_loaded_route(objects[r], ids, destinations, rows)
            sent = torch.bincount(destinations.flatten(), minlength=ranks)
            self.assertTrue(torch.equal(sent, objects[r].send_counts()[r].long()))
            self.assertTrue(torch.equal(rows.flatten().sort().values, torch.arange(ids.numel())))
            arrived += sent
        self.assertTrue(torch.equal(arrived, objects[0].receive_counts().sum(1)))
        self.assertTrue(torch.equal(objects[0].receive_counts(), objects[0].send_counts().t()))
        self.assertEqual(arrived.max(), tokens * k)
        transfers = objects[0].transfers()[: objects[0].transfer_offsets()[-1]]
        self.assertGreater(len(transfers), 0)
        self.assertTrue(torch.equal(transfers[:, 1], transfers[:, 0] * ranks // experts))

    def test_least_loaded_takes_other_homes(self):
        ranks, experts, tokens, k = 4, 8, 128, 2
        ids = random_ids(tokens, k, experts) % 5
        counts = torch.zeros(ranks, experts, dtype=torch.int32)

        def step(of):
            destinations, rows = torch.empty_like(ids), torch.empty_like(ids)
            plimsoll.least_loaded_count(of, ids, counts[1])
            plimsoll.least_loaded_plan(of, counts)
            plimsoll.least_loaded_route(of, ids, destinations, rows)
            return destinations, rows, of.transfers()[: of.transfer_offsets()[-1]].clone()

        def make():
            return plimsoll.least_loaded(ids, 1, ranks, 1, experts, ids.numel(), 1.0, 1, 1.0, 10)

        planner = make()
        # Rank 3 has failed; two experts have two homes.
        slots = torch.tensor([3, 0, 5, 6, 1, 0, 2, 4, 7, 1], dtype=torch.int32)
        offsets = torch.tensor([0, 4, 5, 10, 10], dtype=torch.int32)
        planner.update(slots, offsets, torch.tensor([1, 1, 1, 0], dtype=torch.uint8))
        destinations, _, transfers = step(planner)
        planner.check()
        self.assertLess(destinations.max(), 3)
        self.assertEqual(torch.bincount(destinations.flatten()).max(), -(-ids.numel() // 3))
        self.assertGreater(len(transfers), 0)
        for expert, home, to in transfers.tolist():
            self.assertIn(expert, slots[offsets[home] : offsets[home + 1]].tolist())
            self.assertNotIn(expert, slots[offsets[to] : offsets[to + 1]].tolist())

        slots[8] = 0  # expert 7 has no home
        planner.update(slots, offsets)
        with self.assertRaisesRegex((ValueError, RuntimeError), "least_loaded::update: .* got none, expert 7"):
            planner.check()
        self.assertTrue(torch.equal(step(planner)[0], destinations))  # what is refused changes nothing
        planner.update(torch.arange(experts, dtype=torch.int32), None, torch.ones(ranks, dtype=torch.uint8))
        for tensor, expected in zip(step(planner), step(make())):
            self.assertTrue(torch.equal(tensor, expected))
        planner.check()


if __name__ == "__main__":
    torch.ops.load_library(sys.argv.pop(1))
    unittest.main()
