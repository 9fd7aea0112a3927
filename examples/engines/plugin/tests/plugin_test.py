# SPDX-License-Identifier: Apache-2.0
"""Loads the installed package into stand-ins for vLLM and SGLang, and gives it what they pass when things go wrong."""

import contextlib
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

import numpy
import reference_policies
from plimsoll_eplb import plimsoll_ffi, sglang, vllm
from plimsoll_eplb.options import Options, read_options

try:
    import torch

    import stand_ins
except ImportError:
    torch = None

needs_torch = unittest.skipIf(torch is None, "no PyTorch")
NOISE = 0.2  # of the loads from one window to the next


@contextlib.contextmanager
def engine(modules, **environment):
    """Lets the modules of an engine be imported, with these variables PLIMSOLL_EPLB_*."""
    variables = {"PLIMSOLL_EPLB_" + name.upper(): value for name, value in environment.items()}
    sys.modules.update(modules)
    try:
        with mock.patch.dict(os.environ):
            for name in [name for name in os.environ if name.startswith("PLIMSOLL_EPLB_")]:
                del os.environ[name]
            os.environ.update(variables)
            yield
    finally:
        for name in modules:  # and no other module that was imported meanwhile
            sys.modules.pop(name, None)


def windows(layers, experts, seed=1):
    """Yields the loads of windows [layers, experts], which share what is popular."""
    rng = numpy.random.default_rng(seed)
    popular = rng.dirichlet(numpy.full(experts, 0.3), layers)
    while True:
        yield (4000 * popular * numpy.exp(rng.normal(0, NOISE, popular.shape))).astype(numpy.int64)


def lines(logged, word):
    return [line for line in logged.output if word in line]


class Test(unittest.TestCase):
    def setUp(self):
        # Levels that a test has set by an option.
        for name in ("vllm.plimsoll_eplb", "sglang.plimsoll_eplb"):
            logging.getLogger(name).setLevel("INFO")

    def enter(self, context):
        """Enters a context until the end of the test."""
        value = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return value

    def vllm_policies(self, modules=None, **environment):
        """Returns the policies of vLLM after it has loaded its plugins, as at the start of a process."""
        modules = modules or stand_ins.vllm_modules()
        self.enter(engine(modules, **environment))
        modules["vllm.plugins"].load_general_plugins()
        return modules["vllm.distributed.eplb.policy"].EPLB_POLICIES

    def logs(self, engine_name, level="INFO"):
        return self.assertLogs(f"{engine_name}.plimsoll_eplb", level)

    def assert_equal(self, got, expected):
        numpy.testing.assert_array_equal(numpy.asarray(got), numpy.asarray(expected))


class Choices(Test):
    def test_options(self):
        self.assertEqual(read_options({}), Options())
        self.assertEqual(Options(), Options(0.1, "even", "info", False))
        got = read_options({"PLIMSOLL_EPLB_MAX_MOVES_SHARE": "0.25", "PLIMSOLL_EPLB_SPLIT": "optimal",
                            "PLIMSOLL_EPLB_LOG_LEVEL": "debug", "PLIMSOLL_EPLB_OFF": "1", "PLIMSOLL_OTHER": "x"})
        self.assertEqual(got, Options(0.25, "optimal", "debug", True))
        self.assertIsNone(read_options({"PLIMSOLL_EPLB_MAX_MOVES_SHARE": "none"}).max_moves_share)

    def test_file(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "eplb.toml"
            variables = {"PLIMSOLL_EPLB_CONFIG": str(file)}
            file.write_text('max_moves_share = 0.5\nsplit = "optimal"\n')
            self.assertEqual(read_options(variables), Options(0.5, "optimal"))
            self.assertEqual(read_options({**variables, "PLIMSOLL_EPLB_SPLIT": "even"}), Options(0.5, "even"))
            for content, message in (("moves = 1\n", "moves: expected one of max_moves_share, split, log_level, off"),
                                     ("off = 3\n", "off: expected 0 or 1, got 3"),
                                     ("max_moves_share = true\n", "expected 0 to 1 or none, got True"),
                                     ("split =\n", "PLIMSOLL_EPLB_CONFIG: expected a TOML file")):
                file.write_text(content)
                with self.assertRaisesRegex(ValueError, message):
                    read_options(variables)
            file.unlink()
            with self.assertRaisesRegex(ValueError, "PLIMSOLL_EPLB_CONFIG: expected a TOML file, got .*No such file"):
                read_options(variables)

    def test_bad_values(self):
        for name, value, message in (("MAX_MOVES_SHARE", "1.5", "0 to 1 or none, got '1.5'"),
                                     ("MAX_MOVES_SHARE", "nan", "0 to 1 or none, got 'nan'"),
                                     ("MAX_MOVES_SHARE", "", "0 to 1 or none, got ''"),
                                     ("SPLIT", "odd", "even or optimal, got 'odd'"),
                                     ("LOG_LEVEL", "INFO", "debug, info, warning or error, got 'INFO'"),
                                     ("OFF", "yes", "0 or 1, got 'yes'"),
                                     ("BUDGET", "1", "one of max_moves_share, split, log_level, off, got budget")):
            with self.assertRaisesRegex(ValueError, f"PLIMSOLL_EPLB_{name}: expected {message}"):
                read_options({"PLIMSOLL_EPLB_" + name: value})


@needs_torch
class Vllm(Test):
    layers, experts, slots, ranks = 3, 24, 32, 4

    def state(self, policies=None, **named):
        return stand_ins.EplbState(policies or self.vllm_policies(), self.layers, self.experts, self.slots, self.ranks,
                                   **{"window": 1, "interval": 1, **named})

    def run_windows(self, state, number, loads=None):
        loads = loads or windows(self.layers, self.experts)
        for _ in range(number):
            state.step(next(loads))
            state.check()
        return state

    # --- at the start ----------------------------------------------------------------------------------------------
    def test_is_found_and_loaded(self):
        modules = stand_ins.vllm_modules()
        with self.logs("vllm") as logged:
            policies = self.vllm_policies(modules)
        self.assertEqual(len(lines(logged, "plimsoll: plans within 10 % of the slots")), 1)
        policy = policies["default"]
        self.assertTrue(issubclass(policy, stand_ins.DefaultEplbPolicy))
        self.assertIs(self.vllm_policies(modules)["default"], policy)  # vLLM may load plugins twice
        state = self.run_windows(self.state(policies), 6)
        self.assertGreater(state.rearranged, 0)

    def assert_plans_as_its_own(self, policy):
        loads, arguments = windows(2, 8), (12, 1, 1, 4)
        with self.assertNoLogs("vllm.plimsoll_eplb", "WARNING"):
            for weight in (torch.from_numpy(next(loads)) for _ in range(2)):
                own = stand_ins.DefaultEplbPolicy.rebalance_experts(weight, *arguments)
                self.assert_equal(policy.rebalance_experts(weight, *arguments), own)

    def test_stays_off(self):
        with self.logs("vllm") as logged:
            policies = self.vllm_policies(off="1")
        self.assertEqual(len(lines(logged, "off, vLLM's own policy plans")), 1)
        self.assertIs(policies["default"], stand_ins.DefaultEplbPolicy)

    def test_bad_options(self):
        for environment, message in (({"off": "maybe"}, "PLIMSOLL_EPLB_OFF: expected 0 or 1, got 'maybe'"),
                                     ({"budget": "1"}, "PLIMSOLL_EPLB_BUDGET: expected one of")):
            with self.logs("vllm") as logged:
                policies = self.vllm_policies(**environment)
            (line,) = logged.output
            self.assertRegex(line, f"not used with vLLM .*, whose own policy plans: ValueError: {message}")
            self.assert_plans_as_its_own(policies["default"])

    def test_without_the_library(self):
        plimsoll_ffi.library.cache_clear()
        self.addCleanup(plimsoll_ffi.library.cache_clear)
        self.enter(mock.patch.dict(os.environ, {"PLIMSOLL_FFI_LIBRARIES": "/nowhere"}))
        with self.logs("vllm") as logged:
            policies = self.vllm_policies()
        (line,) = logged.output
        self.assertRegex(line, "not used with vLLM .*, whose own policy plans: .*/nowhere/libplimsoll_host.so")
        self.assert_plans_as_its_own(policies["default"])

    def test_other_versions(self):
        class FewerArguments:
            @classmethod
            def rebalance_experts(cls, weight, num_replicas, num_groups, num_nodes, num_ranks):
                pass

        class ThreeMaps:
            @classmethod
            def rebalance_experts(cls, weight, num_replicas, num_groups, num_nodes, num_ranks,
                                  old_global_expert_indices=None):
                return weight, weight, weight

        for policy, message in ((FewerArguments, "expected the arguments .'weight'.* got .'weight'"),
                                (ThreeMaps, "expected one map .layers, slots., got tuple")):
            with self.logs("vllm") as logged:
                policies = self.vllm_policies(stand_ins.vllm_modules(policy))
            self.assertRegex(logged.output[0], f"not used with vLLM .*rebalance_experts: {message}")
            self.assertIs(policies["default"], policy)
        modules = stand_ins.vllm_modules()
        del modules["vllm.distributed.eplb.policy"].EPLB_POLICIES
        self.enter(engine(modules))
        with self.logs("vllm") as logged:
            modules["vllm.plugins"].load_general_plugins()
        self.assertRegex(logged.output[0], "not used with vLLM .*EPLB_POLICIES")

    def test_an_import_that_fails_is_skipped(self):
        with (mock.patch("importlib.metadata.EntryPoint.load", side_effect=ImportError("no numpy")),
              self.assertLogs("vllm.stand_in") as logged):
            policies = self.vllm_policies()
        self.assertIn("Failed to load plugin plimsoll", logged.output[0])
        self.assertIs(policies["default"], stand_ins.DefaultEplbPolicy)

    # --- what can be planned is planned ----------------------------------------------------------------------------
    def rebalance(self, policy, weight, *arguments):
        return policy.rebalance_experts(torch.as_tensor(weight), *arguments)

    def planned_by_us(self, weight, slots, groups, nodes, ranks, old=None, **environment):
        """Returns the map that the policy returns, where it must be Plimsoll's."""
        policy = self.vllm_policies(**environment)["default"]
        with self.logs("vllm") as logged:
            got = self.rebalance(policy, weight, slots, groups, nodes, ranks, old)
        self.assertEqual(lines(logged, "is not used"), [])
        self.assertEqual(got.dtype, torch.int64)
        for row in got.tolist():
            self.assertEqual(set(row), set(range(weight.shape[1])))
        return got, logged

    def test_slots_that_do_not_divide_the_ranks(self):
        weight = numpy.array([[10, 20, 30, 40]])
        got, _ = self.planned_by_us(weight, 7, 2, 2, 4)
        got, _ = self.planned_by_us(weight, 7, 1, 1, 4, got)
        self.assertEqual(got.shape, (1, 7))

    def test_groups_that_do_not_divide(self):
        weight = numpy.array([[10, 20, 30, 40]])
        expected, _ = self.planned_by_us(weight, 8, 1, 1, 4)
        got, _ = self.planned_by_us(weight, 8, 3, 2, 4)  # the nodes
        self.assert_equal(got, expected)
        got, logged = self.planned_by_us(weight, 8, 3, 3, 6)  # the experts
        self.assertEqual(len(lines(logged, "3 groups of 4 experts on 3 nodes with 6 ranks: planned without")), 1)
        got, logged = self.planned_by_us(weight, 8, 2, 2, 1)  # nodes that do not divide the ranks
        self.assertEqual(len(lines(logged, "planned without the groups")), 1)

    def test_a_budget_with_groups_on_several_nodes(self):
        policy = self.vllm_policies(max_moves_share="0.1")["default"]
        loads = windows(2, 16)
        in_use, _ = reference_policies.vllm(next(loads), 24, 4, 2, 4)
        with self.logs("vllm") as logged:
            for _ in range(3):
                got = numpy.asarray(self.rebalance(policy, next(loads), 24, 4, 2, 4, torch.from_numpy(in_use)))
                self.assertLessEqual(reference_policies.moves(in_use, got, 4)[0], 0.1 * in_use.size)
                in_use = got
        self.assertEqual(len(lines(logged, "planned without keeping the 4 groups on their 2 nodes")), 1)
        weight = next(loads)
        expected, _ = reference_policies.vllm(weight, 24, 4, 2, 4)
        got, logged = self.planned_by_us(weight, 24, 4, 2, 4, max_moves_share="none")
        self.assertEqual(lines(logged, "without keeping"), [])
        self.assertEqual((numpy.sort(got) // 4).tolist(), (numpy.sort(expected) // 4).tolist())

    # --- and nothing raises ----------------------------------------------------------------------------------------
    def test_the_own_policy_plans_if_ours_throws(self):
        policy = self.vllm_policies()["default"]
        weight = torch.tensor([[10, 20, 30, 40]])
        with (mock.patch("plimsoll_eplb.planning.plan", side_effect=OSError("no library")),
              self.logs("vllm") as logged):
            got = policy.rebalance_experts(weight, 8, 1, 1, 4)
        self.assert_equal(got, stand_ins.DefaultEplbPolicy.rebalance_experts(weight, 8, 1, 1, 4))
        self.assertEqual(len(lines(logged, "is not used: OSError: no library")), 1)

    def test_the_map_in_use_is_kept_if_both_throw(self):
        policy = self.vllm_policies()["default"]
        in_use = torch.tensor([[3, 2, 1, 0, 3, 2, 1, 0]])
        for weight in (torch.tensor([[1.0, float("nan"), 1, 1]]), torch.ones(10, 1, 4), torch.tensor([[1, -1, 1, 1]])):
            with (mock.patch.object(stand_ins.DefaultEplbPolicy, "rebalance_experts",
                                    side_effect=AssertionError("odd")),
                  self.logs("vllm") as logged):
                self.assert_equal(policy.rebalance_experts(weight, 8, 1, 1, 4, in_use), in_use)
                self.assert_equal(policy.rebalance_experts(weight, 8, 1, 1, 4), [[0, 1, 2, 3, 0, 1, 2, 3]])
            self.assertEqual(len(lines(logged, "Plimsoll's plan is not used: ValueError: loads: expected")), 2)
            self.assertEqual(len(lines(logged, "own policy is not used: AssertionError: odd")), 2)
            self.assertEqual(len(lines(logged, "the map in use is kept")), 2)

    def test_bad_loads_leave_the_ring(self):
        state = self.state()
        loads = windows(self.layers, self.experts)
        self.run_windows(state, 2, loads)
        with self.logs("vllm") as logged:
            weight = torch.full((self.layers, self.experts), float("inf"))
            state.policy.rebalance_experts(weight, self.slots, 1, 1, self.ranks, state.map)
        self.assertEqual(len(lines(logged, "is not used: ValueError: loads: expected numbers")), 1)
        with self.logs("vllm") as logged:
            self.run_windows(state, 3, loads)
        self.assertEqual(lines(logged, "is not used"), [])

    def test_the_worker_thread_lives(self):
        state = self.state(use_async=True, groups=4, nodes=2)
        loads, later = windows(self.layers, self.experts), windows(self.layers, self.experts, seed=2)

        def run(number, loads):
            before = state.rearranged
            for _ in range(number):
                state.step(next(loads))
                while state.rebalanced and state.results.empty():  # of the thread
                    time.sleep(0.001)
                state.check()
            return state.rearranged - before

        self.assertGreater(run(10, loads), 0)
        with mock.patch("plimsoll_eplb.planning.plan", side_effect=OSError("no library")):
            with mock.patch.object(stand_ins.DefaultEplbPolicy, "rebalance_experts", side_effect=AssertionError("odd")):
                self.assertEqual(run(8, loads), 0)
        self.assertGreater(run(30, later), 0)

    def test_foreign_maps(self):
        weight = next(windows(1, 4))
        for in_use, message in (([[0, 1, 2, 3, 0, 1, 2, 9]], "expected ids from -1 to 3, got 0 to 9"),
                                ([[0, 1, 2, 3, 0, 1, 2, -5]], "expected ids from -1 to 3, got -5 to 3"),
                                ([[0, 1, 2]], "expected 8 slots, or another number of ranks of 2 slots, got 3"),
                                ([[0, 1], [2, 3]], "expected integers .1, slots., got int64 .2, 2."),
                                ([[0.0] * 8], "expected integers .1, slots., got float32 .1, 8.")):
            got, logged = self.planned_by_us(weight, 8, 1, 1, 4, torch.tensor(in_use))
            self.assertRegex("".join(lines(logged, "planned anew")), f"map in use: {message}")
            expected, _ = self.planned_by_us(weight, 8, 1, 1, 4)
            self.assert_equal(got, expected)
        state = self.run_windows(self.state(), 3)
        state.map = state.map.roll(8, dims=1)
        state.held = state.map.clone()
        with self.logs("vllm") as logged:
            self.run_windows(state, 1)
        self.assertEqual(len(lines(logged, "not the one returned last: earlier windows are dropped")), 1)

    def test_one_line_a_decision(self):
        state = self.state()
        loads = windows(self.layers, self.experts)
        for number in range(1, 7):
            before = state.map.clone()
            with self.logs("vllm") as logged:
                state.step(window := next(loads))
            (line,) = logged.output
            now = reference_policies.balancedness(window, self.slots, self.ranks, before.numpy()).mean()
            # The window counts whole tokens of each slot.
            self.assertAlmostEqual(float(line.split("balancedness ")[1].split(",")[0]), now, delta=0.01)
            if (before == state.map).all():
                self.assertRegex(line, r"kept: no plan within the budget gains .* \((1 window|2 windows)\)")
            else:
                then = reference_policies.balancedness(window, self.slots, self.ranks, state.map.numpy()).mean()
                self.assertAlmostEqual(float(line.split("expected ")[1].split(",")[0]), then, delta=0.01)
                moved, _ = reference_policies.moves(before.numpy(), state.map.numpy(), self.ranks)
                self.assertIn(f", {moved} of {before.numel()} slots move", line)
        with self.logs("vllm") as logged:
            state.step(numpy.zeros((self.layers, self.experts), int))
        self.assertRegex(logged.output[0], "balancedness 1.0000, kept: the window has no load")
        self.vllm_policies(log_level="warning")
        self.assertEqual(logging.getLogger("vllm.plimsoll_eplb").level, logging.WARNING)

    def test_noise_moves_little(self):
        """A planner that forgets the window before moves more, for no better balance."""
        arrivals, balancedness = [], []
        for forgets in (False, True):
            state = self.state()
            loads = windows(self.layers, self.experts)
            self.run_windows(state, 5, loads)
            before, mean = state.arrivals, 0
            for _ in range(30):
                if forgets:
                    state.policy.plimsoll_planner._rings.clear()
                of_map = numpy.asarray(state.map)
                window = next(loads)
                mean += reference_policies.balancedness(window, self.slots, self.ranks, of_map).mean() / 30
                state.step(window)
            arrivals.append(state.arrivals - before)
            balancedness.append(mean)
        self.assertLess(arrivals[0], arrivals[1] / 2)
        self.assertGreater(balancedness[0], balancedness[1] - 0.01)

    def test_a_change_is_followed_at_once(self):
        state = self.run_windows(self.state(), 8)
        for seed in (2, 3):
            with self.logs("vllm") as logged:
                self.run_windows(state, 1, windows(self.layers, self.experts, seed))
            self.assertRegex(logged.output[0], "slots move, planned from 1 window$")
            self.run_windows(state, 4, windows(self.layers, self.experts, seed))

    # --- ranks that join, leave and restart, without comparing plans -----------------------------------------------
    def all_plan(self, policies, weight, slots, ranks, in_use):
        maps = [policy.rebalance_experts(torch.as_tensor(weight), slots, 1, 1, ranks, in_use) for policy in policies]
        for other in maps[1:]:
            self.assert_equal(other, maps[0])
        return maps[0]

    def test_a_rank_joins(self):
        policies = [self.vllm_policies()["default"] for _ in range(3)]
        loads = windows(self.layers, 24)
        in_use = torch.arange(30).remainder(24).repeat(self.layers, 1)
        for _ in range(5):
            in_use = self.all_plan(policies, weight := next(loads), 30, 3, in_use)
        policies.append(self.vllm_policies()["default"])
        joined = torch.nn.functional.pad(in_use, (0, 10), value=-1)
        in_use = self.all_plan(policies, weight, 40, 4, joined)  # vLLM passes the last window again
        self.assertGreater(in_use[:, 30:].min(), -1)
        for _ in range(8):
            in_use = self.all_plan(policies, next(loads), 40, 4, in_use)

    def test_a_rank_leaves(self):
        policies = [self.vllm_policies()["default"] for _ in range(8)]
        loads = windows(self.layers, 24)
        in_use = torch.arange(40).remainder(24).repeat(self.layers, 1)
        for _ in range(3):
            in_use = self.all_plan(policies, next(loads), 40, 8, in_use)
        weight = next(loads)
        left = self.all_plan(policies, weight, 30, 6, in_use)
        theirs, _ = reference_policies.vllm(weight, 30, 1, 1, 6)
        theirs = reference_policies.keep_slots(theirs, in_use.numpy()[:, :30], 6)
        kept = [(map == in_use.numpy()[:, :30]).mean() for map in (left.numpy(), theirs)]
        self.assertGreaterEqual(kept[0], kept[1])
        self.assertLessEqual(reference_policies.moves(in_use.numpy()[:, :30], left.numpy(), 6)[0],
                             reference_policies.moves(in_use.numpy()[:, :30], theirs, 6)[0])
        for _ in range(6):
            left = self.all_plan(policies[:6], next(loads), 30, 6, left)

    def test_a_rank_restarts_with_empty_slots(self):
        policies = [self.vllm_policies()["default"] for _ in range(4)]
        loads = windows(self.layers, 24)
        in_use = torch.arange(40).remainder(24).repeat(self.layers, 1)
        in_use = self.all_plan(policies, next(loads), 40, 4, in_use)
        for _ in range(4):
            in_use = self.all_plan(policies, next(loads), 40, 4, in_use)
        policies[2] = self.vllm_policies()["default"]
        in_use[:, 20:30] = -1
        for _ in range(6):
            in_use = self.all_plan(policies, next(loads), 40, 4, in_use)
            self.assertGreater(in_use.min(), -1)

    def test_the_same_slots_on_more_ranks(self):
        loads = windows(self.layers, 24)
        in_use = torch.arange(40).remainder(24).repeat(self.layers, 1)
        policies = [self.vllm_policies()["default"] for _ in range(2)]
        for _ in range(4):
            in_use = self.all_plan(policies, next(loads), 40, 2, in_use)
        policies += [self.vllm_policies()["default"] for _ in range(2)]
        for _ in range(6):
            in_use = self.all_plan(policies, next(loads), 40, 4, in_use)

    def test_all_ranks_restart(self):
        for _ in range(2):
            self.run_windows(self.state(), 4)

    # --- four processes, which compare plans -----------------------------------------------------------------------
    def four_ranks(self, mode):
        program = pathlib.Path(__file__).parent / "four_ranks.py"
        done = subprocess.run([sys.executable, program, mode], capture_output=True, text=True, timeout=400)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        print(done.stdout, end="")
        return done.stderr

    def test_four_ranks(self):
        said = self.four_ranks("sync")
        # A process that restarts; a rank with another window and one without the library, and in the window after them.
        for message, times in (("Plimsoll's plan is not used: ranks have different plans", 4 + (4 + 4) + (3 + 4)),
                               ("the map in use is kept", 4), ("kept: ranks have different plans", 1),
                               ("not used with vLLM", 1)):
            self.assertEqual(said.count(message), times, f"{message}\n{said}")

    def test_four_ranks_with_worker_threads(self):
        self.four_ranks("async")


@needs_torch
class Sglang(Test):
    layers, experts, slots, ranks = 3, 24, 32, 4

    def server(self, load=True, environment=None, **named):
        server = stand_ins.Sglang(self.layers, self.experts, self.slots, self.ranks, **named)
        self.enter(engine(server.modules, **(environment or {})))
        if load:
            server.modules["sglang.srt.plugins"].load_plugins()
        return server

    def steps(self, seed=1):
        loads = windows(self.layers, self.experts, seed)
        while True:
            yield torch.from_numpy(numpy.stack([next(loads) for _ in range(4)]))

    def run_server(self, server, rounds=4, steps=None):
        """Plans and moves; returns the arrivals of each round, and demands that Plimsoll has planned."""
        arrivals = []
        steps = steps or self.steps()
        for _ in range(rounds):
            before = server.metadata and server.metadata.physical_to_logical_map_cpu.numpy()
            with self.logs("sglang") as logged:
                server.update(server.init_by_eplb(next(steps)))
            self.assertEqual(lines(logged, "own algorithm"), [])
            after = server.metadata.physical_to_logical_map_cpu.numpy()
            arrivals.append(after.size if before is None else reference_policies.moves(before, after, self.ranks)[0])
        return arrivals

    def test_is_found_and_loaded(self):
        with self.logs("sglang") as logged:
            server = self.server()
        self.assertEqual(len(lines(logged, "plimsoll: plans within 10 % of the slots")), 1)
        arrivals = self.run_server(server)
        self.assertTrue(all(moved <= 0.1 * self.layers * self.slots for moved in arrivals[1:]), arrivals)

    def test_other_importers_get_it(self):
        server = self.server(load=False)
        user = types.ModuleType("user")
        user.rebalance = server.modules["sglang.srt.eplb.eplb_algorithms"].rebalance_experts
        self.enter(engine({"user": user}))
        server.modules["sglang.srt.plugins"].load_plugins()
        self.assertIs(user.rebalance, server.modules["sglang.srt.eplb.eplb_algorithms"].rebalance_experts)

    def test_stays_off(self):
        for environment, message in (({"off": "1"}, "off, SGLang's own algorithm plans"),
                                     ({"split": "odd"}, "PLIMSOLL_EPLB_SPLIT: expected even or optimal, got 'odd'")):
            with self.logs("sglang") as logged:
                server = self.server(environment=environment)
            self.assertEqual(len(lines(logged, message)), 1)
            self.assertEqual(server.registry.hooks, {})
            server.update(server.init_by_eplb(next(self.steps())))

    def test_without_the_library(self):
        plimsoll_ffi.library.cache_clear()
        self.addCleanup(plimsoll_ffi.library.cache_clear)
        self.enter(mock.patch.dict(os.environ, {"PLIMSOLL_FFI_LIBRARIES": "/nowhere"}))
        with self.logs("sglang") as logged:
            server = self.server()
        self.assertRegex(logged.output[0], "not used with SGLang .*/nowhere/libplimsoll_host.so")
        self.assertEqual(server.registry.hooks, {})

    def test_other_versions(self):
        def fewer_arguments(weight, num_replicas):
            pass

        def one_map(tokens_per_expert, num_physical_experts, num_local_physical_experts, num_groups, num_nodes,
                    algorithm):
            return tokens_per_expert

        for function, message in ((fewer_arguments, "expected the arguments .* got .'weight', 'num_replicas'."),
                                  (one_map, "expected three maps, got Tensor")):
            server = self.server(load=False)
            server.modules["sglang.srt.eplb.eplb_algorithms"].rebalance_experts = function
            with self.logs("sglang") as logged:
                server.modules["sglang.srt.plugins"].load_plugins()
            self.assertRegex(logged.output[0], f"not used with SGLang .*rebalance_experts: {message}")
            self.assertEqual(server.registry.hooks, {})
        server = self.server(load=False)
        del server.modules["sglang.srt.plugins.hook_registry"].HookType
        with self.logs("sglang") as logged:
            server.modules["sglang.srt.plugins"].load_plugins()
        self.assertRegex(logged.output[0], "not used with SGLang .*HookType")

    def test_a_rank_that_is_not_active(self):
        for algorithm in ("elasticity_aware", "elasticity_aware_hierarchical"):
            for share in ("0.1", "none"):
                server = self.server(algorithm=algorithm, groups=4, nodes=2, environment={"max_moves_share": share})
                self.run_server(server, 3)
                for dead in ([1], [0, 1]) if self.slots // self.ranks * 2 >= self.experts else ([1], [0]):
                    server.active[:] = 1
                    server.active[dead] = 0
                    # Its weights are lost: what only it held is loaded from disk, as SGLang does.
                    with mock.patch.object(server, "metadata", None):
                        lost = server.init_by_eplb(next(self.steps()))
                        server.update(lost)
                    server.metadata = lost
                    of_ranks = lost.physical_to_logical_map_cpu.reshape(self.layers, self.ranks, -1)
                    self.assertEqual(of_ranks[:, dead].abs().sum(), 0)  # as SGLang writes them
                    arrivals = self.run_server(server, 3)
                    if share != "none":
                        self.assertTrue(all(moved <= 0.1 * self.layers * self.slots for moved in arrivals), arrivals)
                server.active[:] = 1
                steps = self.steps(3)
                before = server.metadata.physical_to_logical_map_cpu.clone()
                new = server.init_by_eplb(next(steps))  # it comes back with nothing, and gets all its slots at once
                self.assert_equal(server.metadata.physical_to_logical_map_cpu, before)
                server.update(new)
                back = server.metadata.physical_to_logical_map_cpu.reshape(self.layers, self.ranks, -1)
                self.assertGreater(back[:, dead].abs().sum(), 0)
                self.run_server(server, 2, steps)

    def test_auto_and_groups(self):
        server = self.server(groups=4, nodes=2, environment={"max_moves_share": "none"})
        self.run_server(server, 2)
        homes = (server.metadata.physical_to_logical_map_cpu // 6).reshape(self.layers, 2, -1)
        for layer in homes.tolist():
            self.assertEqual(sum(len(set(node)) for node in layer), 4)
        server = self.server(groups=4, nodes=2, environment={"max_moves_share": "0.1"})
        with self.logs("sglang") as logged:
            for _ in range(4):
                server.update(server.init_by_eplb(next(self.steps())))
        self.assertEqual(len(lines(logged, "planned without keeping the 4 groups on their 2 nodes")), 1)

    def test_other_algorithms_are_their_own(self):
        server = self.server(algorithm="deepseek_vec")
        with self.logs("sglang") as logged:
            for _ in range(2):
                server.update(server.init_by_eplb(next(self.steps())))
        self.assertEqual(len(lines(logged, "deepseek_vec is planned by SGLang")), 1)

    def test_the_own_algorithm_plans_if_ours_throws(self):
        server = self.server()
        self.run_server(server, 2)
        steps = next(self.steps())
        arguments = steps, self.slots, self.slots // self.ranks, None, 1, stand_ins.EplbAlgorithm.deepseek
        with (mock.patch("plimsoll_eplb.planning.plan", side_effect=OSError("no library")),
              self.logs("sglang") as logged):
            got = server.init_by_eplb(steps)
        self.assertEqual(len(lines(logged, "SGLang's own algorithm plans: OSError: no library")), 1)
        self.assert_equal(got.physical_to_logical_map_cpu, stand_ins.Sglang.own_algorithm()(*arguments)[0])

    def test_the_map_in_use_is_kept_if_both_throw(self):
        for rounds in (0, 2):
            server = self.server(load=False)
            own = mock.create_autospec(stand_ins.Sglang.own_algorithm(), side_effect=AssertionError("odd"))
            planner = sglang.Planner(own, Options(), sglang.map_in_use, sglang.active_ranks)
            server.modules["sglang.srt.eplb.eplb_algorithms"].rebalance_experts = planner
            if rounds:
                self.run_server(server, rounds)
            before = server.metadata and server.metadata.physical_to_logical_map_cpu.clone()
            for bad in (torch.full((2, self.layers, self.experts), float("nan")), -next(self.steps())):
                with self.logs("sglang") as logged:
                    got = server.init_by_eplb(bad)
                self.assertEqual(len(lines(logged, "the map in use is kept")), 1)
                trivial = numpy.tile(numpy.arange(self.slots) % self.experts, (self.layers, 1))
                self.assert_equal(got.physical_to_logical_map_cpu, trivial if before is None else before)
            server.update(got)

    def test_foreign_maps(self):
        server = self.server()
        self.run_server(server, 2)
        good = server.metadata.physical_to_logical_map_cpu
        for in_use, message in ((good + 5, "expected ids from -1 to 23, got"),
                                (good[:, :5], "expected 32 slots, or another number of ranks of 8 slots, got 5"),
                                (good[:2], "expected integers .3, slots., got int64 .2, 32.")):
            server.metadata = types.SimpleNamespace(physical_to_logical_map_cpu=in_use)
            with self.logs("sglang") as logged:
                got = server.init_by_eplb(next(self.steps()))
            self.assertRegex("".join(lines(logged, "planned anew")), message)
            server.metadata = None
            server.update(got)

    def test_active_ranks_of_another_number(self):
        server = self.server(algorithm="elasticity_aware")
        server.active = torch.ones(3, dtype=torch.int32)
        with self.logs("sglang") as logged:
            server.init_by_eplb(next(self.steps()))
        self.assertEqual(len(lines(logged, "active_ranks: expected 4 ranks of 8 slots, got [1, 1, 1]")), 1)


if __name__ == "__main__":
    unittest.main()
