# SPDX-License-Identifier: Apache-2.0
"""Plans for either engine, on NumPy arrays. A map [layers, slots] has the expert of each slot, or -1."""

import numpy


class OnceLogger:
    """Logs a message once in a process, whatever the number of calls that have it."""

    def __init__(self, log):
        self._log = log
        self._said = set()

    def __call__(self, message):
        if message not in self._said:
            self._said.add(message)
            self._log.warning("plimsoll: %s", message)


def to_numpy(array):
    """Returns an array or a tensor of any device as a NumPy array."""
    if hasattr(array, "cpu"):
        array = array.detach().cpu().numpy()
    return numpy.asarray(array)


def owner_of_slots(slots, ranks):
    """Returns the rank of each slot: rank r begins at floor(r * slots / ranks)."""
    return numpy.repeat(numpy.arange(ranks), numpy.diff(numpy.arange(ranks + 1) * slots // ranks))


def balancedness(loads, map, ranks):
    """Returns mean / max of the rank loads, the mean over layers with load, under the even split; 1 without load."""
    layers = numpy.arange(len(map))[:, None]
    held = map >= 0
    replicas = numpy.zeros(loads.shape)
    numpy.add.at(replicas, (layers, numpy.where(held, map, 0)), held)
    shares = numpy.where(held, (loads / numpy.maximum(replicas, 1))[layers, map], 0)
    on_ranks = numpy.zeros((len(map), ranks))
    numpy.add.at(on_ranks, (layers, owner_of_slots(map.shape[1], ranks)), shares)
    peaks = on_ranks.max(axis=1)
    return float((on_ranks.mean(axis=1)[peaks > 0] / peaks[peaks > 0]).mean()) if peaks.any() else 1.0


def moves(before, after, ranks):
    """Returns how many experts arrive on a rank that did not hold them."""
    layers = numpy.arange(len(after))[:, None]
    owner = owner_of_slots(after.shape[1], ranks)
    held = numpy.zeros((2, len(after), ranks, max(before.max(), after.max()) + 2), bool)
    held[0, layers, owner, before] = held[1, layers, owner, after] = True
    return int((held[1] & ~held[0])[..., :-1].sum())  # the last column is that of -1


def check_loads(loads, dimensions):
    """Returns loads; raises ValueError unless they are numbers of at least 0 with these dimensions."""
    if loads.ndim != len(dimensions):
        raise ValueError(f"loads: expected [{', '.join(dimensions)}], got an array of shape {list(loads.shape)}")
    if loads.dtype.kind not in "iuf" or not numpy.isfinite(loads).all() or (loads < 0).any():
        raise ValueError("loads: expected numbers of at least 0, got NaN, an infinity or a negative number")
    return loads


def check_map(map, layers, slots, experts):
    """Raises ValueError unless the map is one that an engine can serve with: all experts, no empty slot."""
    if map.shape != (layers, slots) or map.dtype.kind != "i":
        raise ValueError(f"map: expected integers [{layers}, {slots}], got {map.dtype} {list(map.shape)}")
    if not is_complete(map, experts):
        raise ValueError(f"map: expected each of the {experts} experts in every layer and no other id")


def is_complete(map, experts):
    if map.size == 0 or map.min() < 0 or map.max() >= experts:
        return False
    held = numpy.zeros((len(map), experts), bool)
    held[numpy.arange(len(map))[:, None], map] = True
    return bool(held.all())


def fitted(in_use, layers, slots, ranks, experts, say):
    """Returns a copy of the map in use for the slots to plan, or None if nothing can be aligned with it. When ranks
    leave, the first ones stay; when ranks join, their slots are empty."""
    if in_use is None:
        return None
    if in_use.ndim != 2 or in_use.dtype.kind != "i" or len(in_use) != layers:
        say(f"map in use: expected integers [{layers}, slots], got {in_use.dtype} {list(in_use.shape)}; planned anew")
        return None
    if in_use.size and (in_use.max() >= experts or in_use.min() < -1):
        say(f"map in use: expected ids from -1 to {experts - 1}, got {in_use.min()} to {in_use.max()}; planned anew")
        return None
    there = in_use.shape[1]
    if there != slots:
        if slots % ranks != 0 or there % (slots // ranks) != 0:
            say(f"map in use: expected {slots} slots, or another number of ranks of {slots / ranks:g} slots, got "
                f"{there}; planned anew")
            return None
        in_use = numpy.pad(in_use[:, :slots], ((0, 0), (0, max(0, slots - there))), constant_values=-1)
    return numpy.array(in_use, numpy.int64, order="C")


def plan(steps, slots, groups, nodes, ranks, in_use, options, say):
    """Returns the map of the plan: within the budget of moves, the one that balances single steps best, or the map in
    use. Without a budget, or without a complete map in use, that of the engines' default policy, with the ranks
    renamed so that the fewest experts move.

    steps: loads [steps, layers, experts], oldest first; groups, nodes: groups of experts stay on their node if there
    are several nodes and the groups divide them; in_use: as of `fitted`; say: logs a message once.
    """
    from plimsoll_eplb import plimsoll_ffi  # only here, so that a process without the library has the rest

    loads = steps.sum(0)
    experts = loads.shape[1]
    may_move = options.max_moves_share is not None and in_use is not None and is_complete(in_use, experts)
    if not groups or groups % nodes != 0:
        groups, nodes = 1, 1
    elif experts % groups != 0 or ranks % nodes != 0:
        say(f"{groups} groups of {experts} experts on {nodes} nodes with {ranks} ranks: planned without the groups")
        groups, nodes = 1, 1
    elif may_move and nodes > 1:
        say(f"a budget of moves: planned without keeping the {groups} groups on their {nodes} nodes "
            "(PLIMSOLL_EPLB_MAX_MOVES_SHARE=none keeps them)")
        groups, nodes = 1, 1
    new = plimsoll_ffi.rebalance_experts(loads, slots, groups, nodes, ranks)[0]
    if in_use is None:
        return new
    if may_move:
        within, _ = plimsoll_ffi.plan_within(steps, in_use, new, ranks, split_evenly=options.split == "even",
                                             max_moves=int(options.max_moves_share * in_use.size))
        # A rank with more slots than experts may get empty ones, which the engines do not know.
        return numpy.where((within < 0).any(axis=1, keepdims=True), in_use, within)
    aligned = plimsoll_ffi.align(in_use, new, experts, ranks, nodes=nodes)
    for layer in numpy.flatnonzero(~loads.any(axis=1)):
        if is_complete(in_use[layer:layer + 1], experts):
            aligned[layer] = in_use[layer]
    return aligned


def trivial_map(layers, experts, slots):
    """Returns a map for when there is neither a plan nor a map in use."""
    if slots < experts:
        raise ValueError(f"slots: expected at least one for each of the {experts} experts, got {slots}")
    return numpy.tile(numpy.arange(slots) % experts, (layers, 1))


def describe(loads, in_use, map, ranks, options, windows, why=None):
    """Returns the line of a decision. `windows`: number of steps or windows that it was made from; `why`: why the map in
    use is kept, where no plan says that."""
    expected = balancedness(loads, map, ranks)
    made_from = f"{windows} window" + "s" * (windows != 1)
    if in_use is None:
        return f"balancedness expected {expected:.4f}, {map.size} slots planned anew"
    before = balancedness(loads, in_use, ranks)
    if not numpy.array_equal(in_use, map):
        return (f"balancedness {before:.4f}, expected {expected:.4f}, {moves(in_use, map, ranks)} of {map.size} slots "
                f"move, planned from {made_from}")
    if why:
        pass
    elif not loads.any():
        why = "the window has no load"
    elif options.max_moves_share is None:
        why = "the plan is the map in use"
    elif windows > 1:
        why = "no plan within the budget gains on windows that it was not made from"
    else:
        why = "no plan within the budget gains on the window"
    return f"balancedness {before:.4f}, kept: {why} ({made_from})"
