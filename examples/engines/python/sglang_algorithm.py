# SPDX-License-Identifier: Apache-2.0
"""EPLB algorithms of SGLang that plan with Plimsoll, and the file for --init-expert-location."""

import argparse
import json
import shlex

import numpy

import plimsoll_ffi

MOST_STEPS = 16  # that a plan within a budget is judged on


def rebalance_experts(tokens_per_expert, num_physical_experts, num_local_physical_experts, num_groups,
                      num_nodes, algorithm, *, in_use=None, max_moves_share=None):
    """Replaces the function of sglang.srt.eplb.eplb_algorithms for the algorithms `deepseek` and
    `deepseek_hierarchical`.

    tokens_per_expert: loads [steps, layers, experts]; algorithm: the member of EplbAlgorithm;
    in_use: the expert of each slot now, [layers, slots]. With it, max_moves_share, 0 to 1, is a
    budget, the largest share of the slots that move to another rank: the plan is the one that
    balances single steps best within it, or the one in use.
    Returns the expert of each slot [layers, slots], the slots of each expert [layers, experts,
    copies], padded with -1, and copies [layers, experts]: int64, in CPU memory.
    """
    name = getattr(algorithm, "name", algorithm)
    if name not in ("deepseek", "deepseek_hierarchical"):
        raise ValueError(
            f"rebalance_experts: algorithm: expected deepseek or deepseek_hierarchical, got {name}")
    groups, nodes = 1, 1
    if name == "deepseek_hierarchical":
        groups, nodes = num_groups, num_nodes
        if groups is None or groups % nodes != 0:
            raise ValueError("rebalance_experts: num_groups: expected a multiple of the "
                             f"{nodes} nodes for deepseek_hierarchical, got {groups}")
    if num_local_physical_experts < 1 or num_physical_experts % num_local_physical_experts != 0:
        raise ValueError("rebalance_experts: num_physical_experts: expected a multiple of the "
                         f"{num_local_physical_experts} of a rank, got {num_physical_experts}")
    if max_moves_share is not None and not 0 <= max_moves_share <= 1:
        raise ValueError("rebalance_experts: max_moves_share: expected 0 to 1 or None, got "
                         f"{max_moves_share}")
    if max_moves_share is not None and nodes > 1:
        raise ValueError("rebalance_experts: max_moves_share: expected None for deepseek_hierarchical "
                         f"on {nodes} nodes, got {max_moves_share}")
    loads = on_cpu(tokens_per_expert.sum(0))
    ranks = num_physical_experts // num_local_physical_experts
    maps = plimsoll_ffi.rebalance_experts(loads, num_physical_experts, groups, nodes, ranks)
    if max_moves_share is None or in_use is None or in_use.shape != maps[0].shape:
        return maps
    planned = plan_within(*(numpy.asarray(on_cpu(one)) for one in (tokens_per_expert, in_use, maps[0])),
                          ranks, max_moves_share)
    return tuple(map(getattr(maps[0], "new_tensor", numpy.asarray), planned))


def on_cpu(array):
    return array.cpu() if hasattr(array, "cpu") else array


def plan_within(steps, in_use, new, ranks, max_moves_share):
    """Returns the three maps of the plan within the budget, for NumPy arrays."""
    # Time grows with the steps, and sums of a few steps tell as much.
    parts = numpy.array_split(steps, max(1, min(len(steps), MOST_STEPS)))
    steps = numpy.stack([part.sum(0) for part in parts])
    # SGLang spreads tokens evenly over the copies of an expert, unless its dispatch is `lp`.
    planned, _ = plimsoll_ffi.plan_within(steps, in_use, new, ranks, split_evenly=True,
                                          max_moves=int(max_moves_share * in_use.size))
    # With more slots of a rank than experts; SGLang has no empty slots.
    has_empty = (planned < 0).any(axis=1, keepdims=True)
    planned = numpy.where(has_empty, in_use, planned)
    copies = numpy.array([numpy.bincount(row, minlength=steps.shape[2]) for row in planned])
    # Each slot is one of the list of its expert, in rising order.
    slots = planned.argsort(axis=1, kind="stable")
    experts = numpy.take_along_axis(planned, slots, axis=1)
    first = numpy.take_along_axis(copies.cumsum(axis=1) - copies, experts, axis=1)
    lists = numpy.full((*copies.shape, copies.max()), -1)
    layers = numpy.arange(len(planned))[:, None]
    lists[layers, experts, numpy.arange(planned.shape[1]) - first] = slots
    return planned, lists, copies


def rebalance_within(max_moves_share):
    """Returns `rebalance_experts` with a budget, which starts from the placement that SGLang uses."""
    def rebalance(*arguments, **named):
        from sglang.srt.eplb.expert_location import get_global_expert_location_metadata

        metadata = get_global_expert_location_metadata()  # None until the server has started
        in_use = None if metadata is None else metadata.physical_to_logical_map_cpu
        return rebalance_experts(*arguments, **named, in_use=in_use, max_moves_share=max_moves_share)

    return rebalance


def init_expert_location(tokens_per_expert, num_physical_experts, num_ranks, num_groups=None,
                         num_nodes=1):
    """Returns the content of the file for --init-expert-location.

    tokens_per_expert: loads [steps, layers, experts] with a row for each layer of the model. Layers
    without load, such as dense ones, get SGLang's trivial map.
    """
    if num_ranks < 1 or num_physical_experts < num_ranks or num_physical_experts % num_ranks != 0:
        raise ValueError("init_expert_location: num_physical_experts: expected a multiple of the "
                         f"{num_ranks} ranks, got {num_physical_experts}")
    hierarchical = num_groups is not None and num_groups % num_nodes == 0
    algorithm = "deepseek_hierarchical" if hierarchical else "deepseek"
    loads = numpy.asarray(tokens_per_expert)
    slots, _, _ = rebalance_experts(loads, num_physical_experts, num_physical_experts // num_ranks,
                                    num_groups, num_nodes, algorithm)
    slots[~loads.any(axis=(0, 2))] = numpy.arange(num_physical_experts) % loads.shape[2]
    return {"physical_to_logical_map": slots.tolist()}


def main():
    parser = argparse.ArgumentParser(description="Writes a file for --init-expert-location.")
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
