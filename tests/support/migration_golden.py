#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/migration: pairs of placements, and the fewest moves and local copies that
exchanges of labels leave, by SciPy's linear_sum_assignment. Run: migration_golden.py FOLDER"""
import collections
import pathlib
import sys

import numpy as np
from scipy.optimize import linear_sum_assignment

LARGE = 10**6  # one move outweighs all copies


def cost_of(new, old):
    """Moves and local copies if a rank with `old` gets `new`."""
    has, had = collections.Counter(new), collections.Counter(old)
    moves = sum(1 for e in has if e not in had)
    changed = len(new) - sum(min(has[e], had[e]) for e in has)
    return moves * LARGE + changed - moves


def assign(cost):
    return int(cost[linear_sum_assignment(cost)].sum())


def best(cost, nodes):
    """The smallest cost of an exchange of ranks by which ranks of a node stay together."""
    n = len(cost) // nodes
    return assign(np.array([[assign(cost[a * n:a * n + n, b * n:b * n + n]) for b in range(nodes)]
                            for a in range(nodes)]))


def placement(rng, experts, ranks, per_rank):
    """Every expert once, further copies of a few, in random order."""
    more = rng.integers(0, max(1, experts // 8), ranks * per_rank - experts)
    return rng.permutation(np.concatenate([np.arange(experts), more])).reshape(ranks, per_rank)


def next_placement(rng, old):
    """Exchanges the labels, then the experts of a third of the slots."""
    new = old[rng.permutation(len(old))].ravel().copy()
    some = rng.permutation(new.size)[: new.size // 3]
    new[some] = new[rng.permutation(some)]
    return new.reshape(old.shape)


def write(folder, seed, layers, experts, ranks, per_rank, nodes):
    rng = np.random.default_rng(seed)
    old = [placement(rng, experts, ranks, per_rank) for _ in range(layers)]
    # Half of the layers share little with the placement before.
    new = [next_placement(rng, p) if i % 2 == 0 else placement(rng, experts, ranks, per_rank)
           for i, p in enumerate(old)]
    costs = [np.array([[cost_of(n, o) for o in before] for n in after])
             for before, after in zip(old, new)]
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "from.npy", np.array(old, np.int32).reshape(layers, -1))
    np.save(folder / "to.npy", np.array(new, np.int32).reshape(layers, -1))
    np.save(folder / "per_layer.npy",
            np.array([divmod(best(c, nodes), LARGE) for c in costs], np.int64))
    np.save(folder / "all_layers.npy", np.array(divmod(best(sum(costs), nodes), LARGE), np.int64))
    names = {"layers": layers, "experts": experts, "slots": ranks * per_rank, "ranks": ranks,
             "nodes": nodes}
    (folder / "scalars.txt").write_text("".join(f"{k} {v}\n" for k, v in names.items()))


def main():
    root = pathlib.Path(sys.argv[1])
    write(root / "64x5", 1, 2, 256, 64, 5, 1)
    write(root / "8x40", 2, 2, 256, 8, 40, 1)
    write(root / "16x5_nodes", 3, 4, 60, 16, 5, 4)


if __name__ == "__main__":
    main()
