# SPDX-License-Identifier: Apache-2.0
"""EPLB policy for vLLM, which loads `register` by the entry point `vllm.general_plugins`."""

import collections
import hashlib
import inspect
import logging

import numpy

from plimsoll_eplb import planning
from plimsoll_eplb.options import Options, read_options, version_of

MOST_WINDOWS = 2  # that a plan is made from: more tell little about the next one
# The loads have changed if the map in use balances a window worse than the one before by more than this.
CHANGE = 0.05
ARGUMENTS = ["weight", "num_replicas", "num_groups", "num_nodes", "num_ranks", "old_global_expert_indices"]

# vLLM shows its own loggers only.
log = logging.getLogger("vllm.plimsoll_eplb")


class Ring:
    """The last windows of a model, how well the map then in use balanced the newest, and the map that was returned."""

    def __init__(self):
        self.windows = collections.deque(maxlen=MOST_WINDOWS)
        self.balancedness = None
        self.returned = None


class Planner:
    """Plans for one process. All ranks call it at the same time with the same arguments.

    vLLM passes the sum of one window, so the planner keeps the sums of earlier calls, to judge a plan on windows that
    it was not made from. When the loads have changed, earlier windows say nothing, and are dropped. A process that has
    just joined has none. So that it plans as the others do, they are also dropped when the numbers of slots or ranks
    change, and when the map in use is not the one that was returned last.

    These rules see no process that restarts with the map of the others, and no rank without a library. So after each
    plan the ranks compare a digest: if one differs, all plan from this window alone; if one still differs, all take
    the plan of vLLM's own policy; and then the map in use.
    """

    def __init__(self, engine_policy, options, group_of_ranks, can_plan=True):
        """engine_policy: the class that is replaced; group_of_ranks: returns the process group of all ranks that call,
        for tensors on the CPU, or None; can_plan: False if Plimsoll cannot plan in this process. Then it has no plan of
        its own to compare, so that all ranks take that of vLLM."""
        self._can_plan = can_plan
        self._engine_policy = engine_policy
        self._options = options
        self._group_of_ranks = group_of_ranks
        self._say = planning.OnceLogger(log)
        self._sizes = None
        self._rings = {}

    def rebalance_experts(self, weight, slots, groups, nodes, ranks, in_use):
        """Returns a map [layers, slots] that all ranks have, int64 in CPU memory. Never raises for what vLLM passes:
        its worker thread would end, and EPLB with it."""
        arguments = slots, groups, nodes, ranks, in_use
        try:
            group = self._group_of_ranks()
        except Exception as refused:
            self._say(f"ranks do not compare their plans: {type(refused).__name__}: {refused}")
            group = None
        plans = [("Plimsoll's plan", lambda: self._plan(weight, *arguments)),
                 ("Plimsoll's plan from this window", lambda: self._plan(weight, *arguments, empty=True)),
                 ("the plan of vLLM's own policy",
                  lambda: self._engine_policy.rebalance_experts(weight, *arguments))]
        logged = None
        for name, make in plans:
            try:
                plan, reason = None, logged
                if self._can_plan or name == plans[-1][0]:
                    plan = self._checked(make(), weight, slots)
                    reason = "ranks have different plans"
            except Exception as refused:
                reason = f"{type(refused).__name__}: {refused}"
            if self._is_on_all_ranks(plan, group):
                break
            if reason != logged:
                log.warning("plimsoll: %s is not used: %s", name, reason)
                logged = reason
        else:
            name = "the map in use"
            plan = self._last_resort(weight, slots, in_use)
            log.warning("plimsoll: the map in use is kept")
        self._remember(weight, plan)
        self._report(weight, ranks, in_use, plan, group, logged if name == "the map in use" else None)
        if hasattr(weight, "cpu"):
            import torch

            return torch.from_numpy(plan)
        return plan

    def _plan(self, weight, slots, groups, nodes, ranks, in_use, empty=False):
        loads = planning.check_loads(planning.to_numpy(weight), ("layers", "experts"))
        layers, experts = loads.shape
        in_use = None if in_use is None else planning.to_numpy(in_use)
        fitted = planning.fitted(in_use, layers, slots, ranks, experts, self._say)
        steps = self._windows(loads, slots, ranks, in_use, fitted, empty)
        if self._options.max_moves_share is None:
            steps = loads[None]
        return planning.plan(steps, slots, groups, nodes, ranks, fitted, self._options, self._say)

    def _windows(self, loads, slots, ranks, in_use, fitted, empty):
        """Adds a window and returns those to plan from, [windows, layers, experts], oldest first."""
        if self._sizes != (slots, ranks):
            self._rings.clear()
            self._sizes = slots, ranks
        ring = self._rings.get(loads.shape)  # the main model and a draft model have one each
        if ring and ring.windows and (in_use is None or not numpy.array_equal(ring.returned, in_use)):
            log.info("plimsoll: the map in use is not the one returned last: earlier windows are dropped")
            empty = True
        if empty or not ring:
            ring = self._rings[loads.shape] = Ring()
        # After ranks join or leave, vLLM passes the last window again.
        if loads.any() and not any(numpy.array_equal(loads, window) for window in ring.windows):
            if fitted is not None:
                before, ring.balancedness = ring.balancedness, planning.balancedness(loads, fitted, ranks)
                if before is not None and ring.balancedness < before - CHANGE:
                    ring.windows.clear()
            ring.windows.append(loads.copy())
        return numpy.stack(ring.windows) if ring.windows else loads[None]

    def _checked(self, plan, weight, slots):
        plan = numpy.ascontiguousarray(planning.to_numpy(plan), numpy.int64)
        planning.check_map(plan, weight.shape[0], slots, weight.shape[1])
        return plan

    def _last_resort(self, weight, slots, in_use):
        if in_use is not None:
            in_use = planning.to_numpy(in_use)
            if in_use.shape[-1] == slots and (in_use >= 0).all():
                return in_use.astype(numpy.int64)
        return planning.trivial_map(*weight.shape[-2:], slots)

    def _is_on_all_ranks(self, plan, group):
        """Returns whether every rank has this plan. No plan is one that no other rank has."""
        if group is None:
            return plan is not None
        import torch

        ends = [2**62, 2**62]
        if plan is not None:
            digest = int.from_bytes(hashlib.blake2b(plan.tobytes(), digest_size=7).digest(), "big")
            ends = [digest, -digest]
        ends = torch.tensor(ends, dtype=torch.int64)
        try:
            torch.distributed.all_reduce(ends, op=torch.distributed.ReduceOp.MAX, group=group)
        except Exception as refused:
            self._say(f"ranks do not compare their plans: {type(refused).__name__}: {refused}")
            return plan is not None
        return int(ends[0]) == -int(ends[1])  # the largest is the smallest

    def _remember(self, weight, plan):
        ring = self._rings.get(tuple(weight.shape))
        if ring is not None:
            ring.returned = plan.copy()

    def _report(self, weight, ranks, in_use, plan, group, why):
        """Logs the decision, on one rank. `why`: why no plan is used, or None."""
        try:
            loads = planning.check_loads(planning.to_numpy(weight), ("layers", "experts"))
            ring = self._rings.get(loads.shape)
            fitted = planning.fitted(None if in_use is None else planning.to_numpy(in_use), *plan.shape, ranks,
                                     loads.shape[1], self._say)
            windows = 1 if ring is None or self._options.max_moves_share is None else max(1, len(ring.windows))
            line = planning.describe(loads, fitted, plan, ranks, self._options, windows, why)
            first = group is None or group.rank() == 0
            log.log(logging.INFO if first else logging.DEBUG, "plimsoll: %s", line)
        except Exception as refused:
            log.debug("plimsoll: nothing can be said of this decision: %s", refused)


def check_engine(policy):
    """Raises TypeError unless the policy to replace has the arguments and the result that the planner has."""
    arguments = list(inspect.signature(policy.rebalance_experts).parameters)
    if arguments != ARGUMENTS:
        raise TypeError(f"rebalance_experts: expected the arguments {ARGUMENTS}, got {arguments}")
    import torch

    made = policy.rebalance_experts(torch.tensor([[1, 2]]), 2, 1, 1, 1)
    if not isinstance(made, torch.Tensor) or list(made.shape) != [1, 2]:
        raise TypeError(f"rebalance_experts: expected one map [layers, slots], got {type(made).__name__}")


def group_of_ranks():
    """Returns the group in which vLLM's own worker compares its progress, or None with one rank or without EPLB."""
    from vllm.distributed.parallel_state import get_eplb_group

    try:
        group = get_eplb_group().cpu_group
    except AssertionError:  # not initialized
        return None
    return group if group.size() > 1 else None


def register():
    """Replaces vLLM's policy `default`, in every process, before EPLB starts. Never raises: where something is not as
    expected, vLLM's own policy plans."""
    try:
        options, refused = read_options(), None
    except ValueError as bad_option:
        options, refused = Options(), bad_option
    try:
        log.setLevel(options.log_level.upper())
        if options.off:
            log.info("plimsoll: off, vLLM's own policy plans")
            return
        from vllm.distributed.eplb import policy

        replaced = policy.EPLB_POLICIES["default"]
        if hasattr(replaced, "plimsoll_planner"):  # vLLM may call this twice
            return
        check_engine(replaced)
        refused = refused or library_error()
        planner = Planner(replaced, options, group_of_ranks, can_plan=refused is None)
        policy.EPLB_POLICIES["default"] = policy_with(planner, replaced)
    except Exception as unknown:
        refused = unknown
    if refused is not None:
        log.warning("plimsoll: not used with vLLM %s, whose own policy plans: %s: %s", version_of("vllm"),
                    type(refused).__name__, refused)
    else:
        log.info("plimsoll: plans within %s of the slots for each rearrangement",
                 "any share" if options.max_moves_share is None else f"{100 * options.max_moves_share:g} %")


def library_error():
    """Returns the exception of a small plan, or None."""
    try:
        planning.plan(numpy.ones((1, 1, 2)), 2, 1, 1, 1, None, Options(), log.warning)
    except Exception as refused:
        return refused
    return None


def policy_with(planner, replaced):
    """Returns a policy that is the replaced one except for its plans."""

    class PlimsollPolicy(replaced):
        plimsoll_planner = planner

        @classmethod
        def rebalance_experts(cls, weight, num_replicas, num_groups, num_nodes, num_ranks,
                              old_global_expert_indices=None):
            return cls.plimsoll_planner.rebalance_experts(weight, num_replicas, num_groups, num_nodes, num_ranks,
                                                          old_global_expert_indices)

    return PlimsollPolicy
