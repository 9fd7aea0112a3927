# SPDX-License-Identifier: Apache-2.0
"""What the drivers of the engines share: four processes, loads whose popular experts change, and checks."""

import multiprocessing
import os
import socket
import sys
import time

import numpy
import torch
import torch.distributed as dist


def named(who):
    """Returns the name of a run."""
    budget = os.environ.get("PLIMSOLL_EPLB_MAX_MOVES_SHARE", "0.1")
    if who == "own":
        return "its own planner"
    return "Plimsoll, no budget" if budget == "none" else f"Plimsoll, budget {budget}"


def value(layer, expert):
    """Returns the weight that an expert has in a layer."""
    return layer * 1000 + int(expert)


def loads(steps, layers, experts, change_after):
    """Yields the loads [layers, experts] of steps, the same on all ranks."""
    rng = numpy.random.default_rng(5)
    popular = rng.dirichlet(numpy.full(experts, 0.3), layers)
    for step in range(steps):
        if step % change_after == 0:
            popular = (popular + rng.dirichlet(numpy.full(experts, 0.3), layers)) / 2
        yield numpy.stack([rng.multinomial(2000, row) for row in popular])


def of_slots(of_experts, placed):
    """Returns the loads of slots [layers, slots] of a map, whose tokens are spread evenly over the replicas."""
    return numpy.stack([row[experts] / numpy.bincount(experts, minlength=len(row))[experts]
                        for row, experts in zip(of_experts, placed.numpy())])


def balancedness(of_slots, ranks):
    of_ranks = of_slots.reshape(len(of_slots), ranks, -1).sum(-1)
    return (of_ranks.mean(1) / of_ranks.max(1)).mean()


def arrivals(before, after, ranks):
    """Returns how many experts arrive on a rank that did not hold them."""
    pairs = (map.reshape(-1, map.shape[1] // ranks).tolist() for map in (before, after))
    return sum(len(set(new) - set(old)) for old, new in zip(*pairs))


def check(placed, weights, rank, ranks):
    """Demands all experts in every layer, and on this rank the weights [layers][kinds][slots] of the map."""
    per_rank = placed.shape[1] // ranks
    for layer, row in enumerate(placed.tolist()):
        assert set(row) == set(range(max(row) + 1)), "experts are missing"
        expected = [value(layer, expert) for expert in row[rank * per_rank:(rank + 1) * per_rank]]
        for kind in weights[layer]:
            assert kind.tolist() == expected, f"layer {layer}: weights {kind.tolist()}, expected {expected}"


def check_equal(placed, group):
    """Demands the same map on all ranks."""
    maps = [torch.empty_like(placed) for _ in range(dist.get_world_size(group))]
    dist.all_gather(maps, placed.contiguous(), group=group)
    assert all(torch.equal(other, placed) for other in maps), "ranks have different maps"


def _run(run, rank, port, arguments):
    os.environ.update(RANK=str(rank), WORLD_SIZE="4", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    run(rank, *arguments)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # without waiting for the threads of an engine


def four_ranks(run, *arguments):
    """Calls run(rank, *arguments) in four processes; exits with 1 if one fails."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [multiprocessing.Process(target=_run, args=(run, rank, port, arguments)) for rank in range(4)]
    for rank in ranks:
        rank.start()
    deadline = time.monotonic() + 600
    while any(rank.exitcode is None for rank in ranks):
        if any(rank.exitcode for rank in ranks) or time.monotonic() > deadline:
            for rank in ranks:
                rank.kill()
            sys.exit("a rank failed")
        time.sleep(0.1)
