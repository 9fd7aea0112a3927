# SPDX-License-Identifier: Apache-2.0
"""EPLB algorithms for SGLang, which loads `register` by the entry point `sglang.srt.plugins`; as a program, writes the
file for --init-expert-location."""

import argparse
import inspect
import json
import logging
import shlex

import numpy

from plimsoll_eplb import planning
from plimsoll_eplb.options import Options, read_options, version_of

MOST_STEPS = 16  # that a plan is made from: time grows with them, and sums of a few steps tell as much
TARGET = "sglang.srt.eplb.eplb_algorithms.rebalance_experts"
ARGUMENTS = ["tokens_per_expert", "num_physical_experts", "num_local_physical_experts", "num_groups", "num_nodes",
             "algorithm"]
ELASTIC = ("elasticity_aware", "elasticity_aware_hierarchical")
PLANNED = ("deepseek", "deepseek_hierarchical", *ELASTIC)

log = logging.getLogger("sglang.plimsoll_eplb")


class Planner:
    """Replaces SGLang's `rebalance_experts`. Keeps nothing between calls, so that ranks with equal loads plan alike."""

    def __init__(self, engine_function, options, map_in_use, active_ranks):
        """engine_function: the function that is replaced; map_in_use: returns the map [layers, slots], or None before
        the server has started; active_ranks: returns which ranks live, [ranks]."""
        self._engine_function = engine_function
        self._options = options
        self._map_in_use = map_in_use
        self._active_ranks = active_ranks
        self._say = planning.OnceLogger(log)

    def __call__(self, tokens_per_expert, num_physical_experts, num_local_physical_experts, num_groups, num_nodes,
                 algorithm):
        """Returns the expert of each slot [layers, slots], the slots of each expert [layers, experts, replicas], padded
        with -1, and the replicas of each expert [layers, experts]: int64, in CPU memory. Never raises for what SGLang
        passes, since that would end its scheduler."""
        arguments = (tokens_per_expert, num_physical_experts, num_local_physical_experts, num_groups, num_nodes,
                     algorithm)
        name = getattr(algorithm, "name", algorithm)
        if name not in PLANNED:
            self._say(f"{name} is planned by SGLang; Plimsoll plans {', '.join(PLANNED)}")
            return self._engine_function(*arguments)
        try:
            maps = self._plan(*arguments[:-1], name)
        except Exception as refused:
            log.warning("plimsoll: SGLang's own algorithm plans: %s: %s", type(refused).__name__, refused)
            try:
                return self._engine_function(*arguments)
            except Exception as theirs:
                log.warning("plimsoll: the map in use is kept, SGLang's own algorithm failed: %s: %s",
                            type(theirs).__name__, theirs)
                maps = self._last_resort(tokens_per_expert, num_physical_experts)
        if hasattr(tokens_per_expert, "cpu"):
            import torch

            return tuple(map(torch.from_numpy, maps))
        return maps

    def _in_use(self):
        try:
            in_use = self._map_in_use()
        except Exception as refused:
            self._say(f"no map in use, planned anew: {type(refused).__name__}: {refused}")
            return None
        return None if in_use is None else planning.to_numpy(in_use)

    def _plan(self, tokens, slots, per_rank, groups, nodes, name):
        loads = planning.check_loads(planning.to_numpy(tokens), ("steps", "layers", "experts"))
        if per_rank < 1 or slots < per_rank:
            raise ValueError(f"num_local_physical_experts: expected 1 to {slots} slots, got {per_rank}")
        _, layers, experts = loads.shape
        ranks = slots // per_rank
        live = numpy.ones(ranks, bool)
        if name in ELASTIC:
            live = planning.to_numpy(self._active_ranks()).astype(bool)
            if live.shape != (ranks,) or not live.any() or slots % ranks != 0:
                raise ValueError(f"active_ranks: expected {ranks} ranks of {slots / ranks:g} slots, got "
                                 f"{live.astype(int).tolist()}")
        if not name.endswith("hierarchical") or not live.all():
            groups, nodes = 1, 1
        in_use = planning.fitted(self._in_use(), layers, slots, ranks, experts, self._say)
        held_by_live = numpy.repeat(live, per_rank) if name in ELASTIC else numpy.ones(slots, bool)
        if in_use is not None and name in ELASTIC:
            # SGLang writes expert 0 to all slots of a rank that is not active: one that has just come back holds
            # nothing that a plan may rely on.
            slots_of_ranks = in_use.reshape(layers, ranks, per_rank)
            slots_of_ranks[:, (slots_of_ranks == 0).all(axis=(0, 2))] = -1
        parts = numpy.array_split(loads, max(1, min(len(loads), MOST_STEPS)))
        steps = numpy.stack([part.sum(0) for part in parts])
        # Plans for the ranks that live, as if there were no others.
        of_live = None if in_use is None else numpy.ascontiguousarray(in_use[:, held_by_live])
        planned = planning.plan(steps, int(held_by_live.sum()), groups, nodes, int(live.sum()), of_live, self._options,
                                self._say)
        planning.check_map(planned, layers, int(held_by_live.sum()), experts)
        log.log(logging.INFO if is_first_rank() else logging.DEBUG, "plimsoll: %s",
                planning.describe(loads.sum(0), of_live, planned, int(live.sum()), self._options, len(steps)))
        of_all = numpy.zeros((layers, slots), numpy.int64)
        of_all[:, held_by_live] = planned
        return self._maps(of_all, held_by_live, experts)

    def _last_resort(self, tokens, slots):
        layers, experts = tokens.shape[-2:]
        in_use = self._in_use()
        if in_use is None or in_use.shape != (layers, slots) or not planning.is_complete(in_use, experts):
            in_use = planning.trivial_map(layers, experts, slots)
        return self._maps(in_use.astype(numpy.int64), numpy.ones(slots, bool), experts)

    @staticmethod
    def _maps(of_slots, live_slots, experts):
        """Returns SGLang's three maps. The slots of an expert are those of live ranks, in rising order."""
        numbers = numpy.flatnonzero(live_slots)
        held = of_slots[:, numbers]
        replicas = numpy.array([numpy.bincount(row, minlength=experts) for row in held])
        order = held.argsort(axis=1, kind="stable")
        sorted_experts = numpy.take_along_axis(held, order, axis=1)
        first = numpy.take_along_axis(replicas.cumsum(axis=1) - replicas, sorted_experts, axis=1)
        lists = numpy.full((*replicas.shape, replicas.max()), -1)
        layers = numpy.arange(len(held))[:, None]
        lists[layers, sorted_experts, numpy.arange(held.shape[1]) - first] = numbers[order]
        return of_slots, lists, replicas


def is_first_rank():
    try:
        import torch.distributed

        return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
    except ImportError:
        return True


def map_in_use():
    from sglang.srt.eplb.expert_location import get_global_expert_location_metadata

    metadata = get_global_expert_location_metadata()  # None until the server has started
    return None if metadata is None else metadata.physical_to_logical_map_cpu


def active_ranks():
    from sglang.srt.elastic_ep.elastic_ep import ElasticEPStateManager

    state = ElasticEPStateManager.instance()
    return ElasticEPStateManager.healthy_rank_state() if state is None else state.active_ranks


def check_engine(algorithms):
    """Raises TypeError unless the function to replace has the arguments and the result that the planner has."""
    arguments = list(inspect.signature(algorithms.rebalance_experts).parameters)
    if arguments != ARGUMENTS:
        raise TypeError(f"rebalance_experts: expected the arguments {ARGUMENTS}, got {arguments}")
    import torch

    made = algorithms.rebalance_experts(torch.tensor([[[1, 2]]]), 2, 1, None, 1, algorithms.EplbAlgorithm["deepseek"])
    if not isinstance(made, tuple) or [list(map.shape) for map in made] != [[1, 2], [1, 2, 1], [1, 2]]:
        raise TypeError(f"rebalance_experts: expected three maps, got {type(made).__name__}")


def register():
    """Replaces SGLang's `rebalance_experts`, in every process. Never raises: where something is not as expected, SGLang
    keeps its own function."""
    try:
        options = read_options()
        log.setLevel(options.log_level.upper())
        if options.off:
            log.info("plimsoll: off, SGLang's own algorithm plans")
            return
        from sglang.srt.eplb import eplb_algorithms
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType

        check_engine(eplb_algorithms)
        planning.plan(numpy.ones((1, 1, 2)), 2, 1, 1, 1, None, options, log.warning)  # loads the library
        planner = Planner(eplb_algorithms.rebalance_experts, options, map_in_use, active_ranks)

        # SGLang wraps functions only by functions.
        def rebalance_experts(*arguments, **named):
            return planner(*arguments, **named)

        HookRegistry.register(TARGET, rebalance_experts, HookType.REPLACE)
        log.info("plimsoll: plans within %s of the slots for each rearrangement",
                 "any share" if options.max_moves_share is None else f"{100 * options.max_moves_share:g} %")
    except Exception as refused:
        log.warning("plimsoll: not used with SGLang %s, whose own algorithm plans: %s: %s", version_of("sglang"),
                    type(refused).__name__, refused)


def init_expert_location(tokens_per_expert, num_physical_experts, num_ranks, num_groups=None, num_nodes=1):
    """Returns the content of the file for --init-expert-location.

    tokens_per_expert: loads [steps, layers, experts] with a row for each layer of the model. Layers without load, such
    as dense ones, get SGLang's trivial map.
    """
    if num_ranks < 1 or num_physical_experts < num_ranks or num_physical_experts % num_ranks != 0:
        raise ValueError(f"init_expert_location: num_physical_experts: expected a multiple of the {num_ranks} ranks, "
                         f"got {num_physical_experts}")
    loads = numpy.asarray(tokens_per_expert)
    slots = planning.plan(loads, num_physical_experts, num_groups, num_nodes, num_ranks, None, Options(),
                          planning.OnceLogger(log))
    slots[~loads.any(axis=(0, 2))] = numpy.arange(num_physical_experts) % loads.shape[2]
    return {"physical_to_logical_map": slots.tolist()}


def main():
    parser = argparse.ArgumentParser(prog="python -m plimsoll_eplb.sglang",
                                     description="Writes a file for --init-expert-location.")
    parser.add_argument("loads", help=".npy file [steps, layers, experts], as of read_recordings")
    parser.add_argument("--slots", type=int, required=True, help="slots of a layer over all ranks")
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--groups", type=int, help="groups of experts of the router")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--output", required=True, metavar="FILE.json")
    chosen = parser.parse_args()
    loads = numpy.load(chosen.loads)
    try:
        plan = init_expert_location(loads, chosen.slots, chosen.ranks, chosen.groups, chosen.nodes)
    except ValueError as refused:
        parser.error(str(refused))
    with open(chosen.output, "w") as file:
        json.dump(plan, file)
    print(f"--init-expert-location {shlex.quote(chosen.output)} --ep-size {chosen.ranks} "
          f"--ep-num-redundant-experts {chosen.slots - loads.shape[2]}")


if __name__ == "__main__":
    main()
