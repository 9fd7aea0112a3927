# SPDX-License-Identifier: Apache-2.0
"""Initial assignments of experts for TensorRT-LLM's moe_load_balancer.yaml, planned with Plimsoll."""

import argparse

import numpy

from plimsoll_eplb import plimsoll_ffi


def initial_global_assignments(loads, layers, num_slots, ep_size):
    """Replaces do_replication and do_placement in generate_eplb_config.py.

    loads: token counts [layers, experts]; layers: the ids of these layers in the model.
    Returns the expert of each slot by id of the layer; rank r has the r-th block of
    num_slots / ep_size slots.
    """
    if ep_size < 1 or num_slots % ep_size != 0:
        raise ValueError(f"initial_global_assignments: num_slots: expected a multiple of the {ep_size} "
                         f"ranks, got {num_slots}")
    if len(layers) != len(loads):
        raise ValueError(f"initial_global_assignments: layers: expected {len(loads)} ids, as loads has "
                         f"rows, got {len(layers)}")
    if any(b <= a for a, b in zip(layers, layers[1:])):
        raise ValueError("initial_global_assignments: layers: expected ids that increase, got "
                         f"{list(layers)}")
    slots, _, _ = plimsoll_ffi.rebalance_experts(loads, num_slots, 1, 1, ep_size)
    return {int(layer): row.tolist() for layer, row in zip(layers, slots)}


def config(assignments, layer_updates_per_iter=0):
    """Returns the text of moe_load_balancer.yaml."""
    lines = [f"num_slots: {len(next(iter(assignments.values())))}", "initial_global_assignments:"]
    lines += [f"  {layer}: {experts}" for layer, experts in assignments.items()]
    return "\n".join([*lines, f"layer_updates_per_iter: {layer_updates_per_iter}", ""])


def layer_ids(text):
    """Reads ids as read_recordings and plan_experts write them: 3,5:8 is 3, 5, 6, 7, and 1:8:2 is 1, 3, 5, 7."""
    ids = []
    for part in text.split(","):
        ends = part.split(":")
        if len(ends) > 3 or not all(end.isdecimal() for end in ends):
            raise argparse.ArgumentTypeError(f"expected ids such as 3,5:8 or 1:8:2, got {text}")
        first, last, step = *map(int, ends), *(int(ends[0]) + 1, 1)[len(ends) - 1:]
        if step < 1 or last <= first:
            raise argparse.ArgumentTypeError(f"expected an end above the first id and a step of at least 1, got {part}")
        ids += range(first, last, step)
    if any(b <= a for a, b in zip(ids, ids[1:])):
        raise argparse.ArgumentTypeError(f"expected ids that increase, got {text}")
    return ids


def main():
    parser = argparse.ArgumentParser(prog="python -m plimsoll_eplb.tensorrt_llm",
                                     description="Writes moe_load_balancer.yaml.")
    parser.add_argument("loads", help=".npy file [steps, layers, experts], as of read_recordings")
    parser.add_argument("--layer-ids", type=layer_ids, required=True, metavar="LIST",
                        help="the model's layers of the rows, as read_recordings prints them")
    parser.add_argument("--num_slots", type=int, required=True)
    parser.add_argument("--ep_size", type=int, required=True)
    parser.add_argument("--layer_updates_per_iter", type=int, default=0)
    parser.add_argument("--output_path", required=True)
    chosen = parser.parse_args()
    loads = numpy.load(chosen.loads).sum(axis=0)
    try:
        assignments = initial_global_assignments(loads, chosen.layer_ids, chosen.num_slots, chosen.ep_size)
    except ValueError as refused:
        parser.error(str(refused))
    with open(chosen.output_path, "w") as file:
        file.write(config(assignments, chosen.layer_updates_per_iter))


if __name__ == "__main__":
    main()
