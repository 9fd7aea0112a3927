# SPDX-License-Identifier: Apache-2.0
"""EPLB algorithms of SGLang that plan with Plimsoll, and the file for --init-expert-location."""

import argparse
import json
import shlex

import numpy

import plimsoll_ffi


def rebalance_experts(tokens_per_expert, num_physical_experts, num_local_physical_experts, num_groups,
                      num_nodes, algorithm):
    """Replaces the function of sglang.srt.eplb.eplb_algorithms for the algorithms `deepseek` and
    `deepseek_hierarchical`.

    tokens_per_expert: loads [steps, layers, experts]; algorithm: the member of EplbAlgorithm.
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
    loads = tokens_per_expert.sum(0)
    loads = loads.cpu() if hasattr(loads, "cpu") else loads
    ranks = num_physical_experts // num_local_physical_experts
    return plimsoll_ffi.rebalance_experts(loads, num_physical_experts, groups, nodes, ranks)


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
