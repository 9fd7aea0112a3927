# SPDX-License-Identifier: Apache-2.0
"""The EPLB policies of vLLM and SGLang in NumPy, from their definition.

Both pack the items of a row in descending order of load, each into the lightest pack that has room, and
give each extra replica to the expert with the most load per replica. They differ in arithmetic: SGLang
rounds shares and sums to float32, vLLM has shares and sums in float64 of loads in float32.

A plan is `distinct` if no decision compared two values that differ by less than CLOSE of their size:
sorts and roundings decide ties. Equal packs, of replicas of the same experts, are no such tie.
"""

import numpy

CLOSE = 1e-5


class Plan:
    def __init__(self, real):
        self.real = real
        self.distinct = True

    def note(self, larger, smaller):
        self.distinct &= bool(larger - smaller > CLOSE * larger)

    def packed(self, loads, names, packs):
        """Returns the items of each pack, [packs][room], in the order in which they were packed."""
        room = len(loads) // packs
        if room == 1:
            return [[item] for item in range(packs)]
        order = numpy.argsort(-loads, kind="stable")
        for before, after in zip(order, order[1:]):
            if names[before] != names[after]:
                self.note(loads[before], loads[after])
        held, sums = [[] for _ in range(packs)], numpy.zeros(packs, self.real)
        for item in order:
            open_packs = [pack for pack in range(packs) if len(held[pack]) < room]
            lightest = min(open_packs, key=lambda pack: sums[pack])
            its_names = sorted(names[i] for i in held[lightest])
            for pack in open_packs:
                if pack != lightest and sorted(names[i] for i in held[pack]) != its_names:
                    self.note(sums[pack], sums[lightest])
            held[lightest].append(item)
            sums[lightest] += loads[item]
        return held

    def replicated(self, loads, slots):
        """Returns the expert of each replica: first copies in order, then extra ones as given."""
        copies = numpy.ones(len(loads), numpy.int64)
        experts = list(range(len(loads)))
        for _ in range(slots - len(loads)):
            shares = (loads / copies).astype(self.real)
            first = int(numpy.argmax(shares))
            others = numpy.delete(shares, first)
            if len(others):
                self.note(shares[first], others.max())
            experts.append(first)
            copies[first] += 1
        return experts, (loads / copies).astype(self.real)

    def layer(self, loads, slots, groups, nodes, ranks):
        size, result = len(loads) // groups, []
        loads = loads.astype(self.real)
        of_groups = loads.reshape(groups, size).sum(axis=1)
        for node_groups in self.packed(of_groups, list(range(groups)), nodes):
            members = [group * size + i for group in node_groups for i in range(size)]
            experts, shares = self.replicated(loads[members], slots // nodes)
            on_ranks = self.packed(shares[experts], experts, ranks // nodes)
            result += [members[experts[item]] for items in on_ranks for item in items]
        return result

    def rebalance(self, weight, slots, groups, nodes, ranks):
        weight = weight.astype(numpy.float32)
        return numpy.array([self.layer(row, slots, groups, nodes, ranks) for row in weight])


def vllm(weight, slots, groups, nodes, ranks, old=None):
    """Returns the map, aligned with the one in use, and whether it is distinct."""
    plan = Plan(numpy.float64)
    if groups % nodes != 0:
        groups, nodes = 1, 1
    new = plan.rebalance(weight, slots, groups, nodes, ranks)
    return new if old is None else keep_slots(new, old, ranks), plan.distinct


def keep_slots(new, old, ranks):
    """Lets experts that stay on their rank keep their slots; the others fill free slots in order."""
    result = new.copy()
    for row, old_row in zip(result, old):
        for after, before in zip(row.reshape(ranks, -1), old_row.reshape(ranks, -1)):
            arriving, free = after.tolist(), []
            for slot, expert in enumerate(before.tolist()):
                if expert in arriving:
                    arriving.remove(expert)
                    after[slot] = expert
                else:
                    free.append(slot)
            after[free] = arriving
    return result


def sglang(tokens, slots, groups, nodes, ranks, hierarchical):
    """Returns the three maps and whether they are distinct."""
    plan = Plan(numpy.float32)
    weight = tokens.sum(axis=0)
    slots_of = plan.rebalance(weight, slots, *((groups, nodes) if hierarchical else (1, 1)), ranks)
    layers, experts = weight.shape
    copies = numpy.array([numpy.bincount(row, minlength=experts) for row in slots_of])
    return slots_of, copies, plan.distinct


def balancedness(weight, slots, ranks, experts_in_slots):
    """Returns mean / max of the rank loads of each layer; 1 without load."""
    result = []
    for loads, row in zip(weight.astype(float), experts_in_slots):
        shares = loads / numpy.maximum(numpy.bincount(row, minlength=len(loads)), 1)
        on_ranks = shares[row].reshape(ranks, slots // ranks).sum(axis=1)
        result.append(on_ranks.mean() / on_ranks.max() if on_ranks.max() > 0 else 1.0)
    return numpy.array(result)


def moves(old, new, ranks):
    """Returns the experts that arrive on a rank which did not hold them, and the slots that change."""
    arrivals = 0
    for before, after in zip(old, new):
        for there, here in zip(before.reshape(ranks, -1), after.reshape(ranks, -1)):
            arrivals += len(set(here.tolist()) - set(there.tolist()))
    return arrivals, int((old != new).sum())
