# SPDX-License-Identifier: Apache-2.0
"""Plans a model from recorded loads, then balances a step, with NumPy arrays. PyTorch's tensors work in
the same way, on the CPU and on a GPU."""

import numpy as np

import plimsoll_ffi

# As an engine calls DeepSeek's EPLB: two layers of twelve experts on eight GPUs with two slots each.
weight = np.array(
    [
        [90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86],
        [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27],
    ]
)
phy2log, log2phy, logcnt = plimsoll_ffi.rebalance_experts(weight, 16, 4, 2, 8)
print("experts in the slots of layer 0:", *phy2log[0])
print("slots of its expert 10:", *log2phy[0, 10], "and copies:", logcnt[0, 10])

# From a history of steps, for an engine that splits every step over the copies.
loads = weight * np.array([1, 2, 1, 3])[:, None, None]
physical_to_logical, copies, planner = plimsoll_ffi.select_planner(loads, 24, 8)
print("planner:", planner)

# Other experts become busy: is a new plan worth the move? A plan looks better than it is on the steps that
# it was made from, so `decide_replan` also takes the plan of each half and judges it on the other half.
later = 100 * np.concatenate([loads, loads])[:, :, ::-1]
new, of_first_half, of_second_half = (
    plimsoll_ffi.align(physical_to_logical, plimsoll_ffi.place_by_flow(part, 24, 8)[0], 12, 8)
    for part in (later, later[:4], later[4:])
)
judged = plimsoll_ffi.decide_replan(
    later, physical_to_logical, new, 8, of_first_half=of_first_half, of_second_half=of_second_half,
    horizon=1000, expert_bytes=44_000_000, launch=20e-6, per_token=10e-9, flat_below=200,
)
print(f"{judged['answer']}: pays after {judged['break_even_steps']:.0f} steps;", *judged["layer_answer"])

# Every step: 64 tokens choose two experts of layer 0, as popular as before; each copy gets a slot.
topk_ids = np.resize(np.repeat(np.arange(12, dtype=np.int32), weight[0] // 8), (2, 64)).T
balancer = plimsoll_ffi.lplb(physical_to_logical, copies, 8, max_token_copies=topk_ids.size)
counts = np.zeros((2, 12), np.int32)
balancer.count(topk_ids, counts[0])  # an engine sums the counts of all ranks here
balancer.plan(counts)
slots = np.empty_like(topk_ids)
balancer.dispatch(0, topk_ids, slots)
balancer.check()
print("token copies of the GPUs:", *np.bincount(slots.ravel() // 3, minlength=8))
print("every slot holds the expert:", bool((physical_to_logical[0][slots] == topk_ids).all()))
