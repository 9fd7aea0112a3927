# SPDX-License-Identifier: Apache-2.0
"""four_ranks.py sync|async: four processes, one per rank, over gloo, that plan as vLLM's ranks do, for 200 windows in
which a process restarts, a rank has another window, a rank leaves, one joins, and one has no library. Demands after
every window equal maps on all ranks, the weights where the map says, and no more moves than the budget."""

import logging
import os
import sys
import time
import types
from unittest import mock

import drive
import numpy
import stand_ins
import torch.distributed
from plimsoll_eplb import plimsoll_ffi

RANKS, PER_RANK, LAYERS, EXPERTS, SHARE = 4, 10, 3, 24, 0.1
WINDOWS = {"sync": 200, "async": 40}
CHANGES = 25  # windows after which other experts become popular
RESTARTS, OTHER_WINDOW, LEAVES, JOINS, NO_LIBRARY = 24, 50, 90, 120, 150


class OtherLoads:
    """A rank whose policy sees other loads."""

    def __init__(self, policy):
        self.policy = policy

    def rebalance_experts(self, weight, *arguments):
        return self.policy.rebalance_experts(weight.flip(1), *arguments)


def fresh_policy(eplb):
    """Returns the policies of a process that has just loaded its plugins."""
    modules = stand_ins.vllm_modules(eplb=eplb)
    sys.modules.update(modules)
    modules["vllm.plugins"].load_general_plugins()
    return modules["vllm.distributed.eplb.policy"].EPLB_POLICIES


def run(rank, mode):
    os.environ["PLIMSOLL_EPLB_MAX_MOVES_SHARE"] = str(SHARE)
    logging.basicConfig(level="WARNING", format=f"rank {rank}: %(message)s")
    # Rank by rank: the engine's group, and that of EPLB, for all and for those that stay.
    group, few = torch.distributed.group.WORLD, torch.distributed.new_group([0, 1, 2])
    eplb_all, eplb_few = torch.distributed.new_group([0, 1, 2, 3]), torch.distributed.new_group([0, 1, 2])
    eplb = types.SimpleNamespace(cpu_group=eplb_all)
    state = stand_ins.EplbState(fresh_policy(eplb), LAYERS, EXPERTS, RANKS * PER_RANK, RANKS, group=group, window=1,
                                interval=1, use_async=mode == "async")
    rng = numpy.random.default_rng(1)  # the same on all ranks
    popular = rng.dirichlet(numpy.full(EXPERTS, 0.3), LAYERS)
    moved = 0
    for window in range(WINDOWS[mode]):
        if window % CHANGES == 0:
            popular = (popular + rng.dirichlet(numpy.full(EXPERTS, 0.3), LAYERS)) / 2
        loads = numpy.stack([rng.multinomial(4000, row) for row in popular])
        if mode == "async":
            state.step(loads)
            time.sleep(0.05)
            state.check()
            continue
        if window == RESTARTS and rank == 2:
            state.policy = fresh_policy(eplb)["default"]
        if window in (OTHER_WINDOW, NO_LIBRARY) and rank == 1:
            usual, state.policy = state.policy, OtherLoads(state.policy)
            if window == NO_LIBRARY:
                plimsoll_ffi.library.cache_clear()
                with mock.patch.dict(os.environ, {"PLIMSOLL_FFI_LIBRARIES": "/nowhere"}):
                    state.policy = fresh_policy(eplb)["default"]
        if window == LEAVES:
            state.rearrange(ranks_after=3)
            if rank == 3:
                del state
            else:
                state.resize(3, few)
                eplb.cpu_group = eplb_few
        if window == JOINS:
            eplb.cpu_group = eplb_all
            if rank == 3:
                state = stand_ins.EplbState(fresh_policy(eplb), LAYERS, EXPERTS, RANKS * PER_RANK, RANKS, group=group,
                                            window=1, interval=1)
                state.held[:] = -1
            else:
                state.resize(4, group)
            torch.distributed.broadcast(state.map, 0)
        if LEAVES <= window < JOINS and rank == 3:
            continue
        before = state.arrivals
        state.step(loads)
        state.check()
        moved += state.arrivals - before
        if window not in (LEAVES, JOINS, OTHER_WINDOW, NO_LIBRARY):
            assert state.arrivals - before <= SHARE * state.map.numel(), (window, state.arrivals - before)
        if window == OTHER_WINDOW:
            assert state.arrivals == before, "the map in use was to be kept"
        if window in (OTHER_WINDOW, NO_LIBRARY) and rank == 1:
            state.policy = usual
    if mode == "async" and state.rearranged < 3:
        raise AssertionError(f"rearranged {state.rearranged} times")
    if rank == 0:
        print(f"{mode}: {WINDOWS[mode]} windows, rearranged {state.rearranged} times, {state.arrivals} experts arrived "
              f"on another rank; maps, weights and budgets are right on all ranks", flush=True)


if __name__ == "__main__":
    drive.four_ranks(run, sys.argv[1])
