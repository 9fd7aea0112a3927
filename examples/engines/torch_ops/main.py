# SPDX-License-Identifier: Apache-2.0
"""Plans a model from recorded loads, then balances a step, with the operators of the library that is the
argument (libplimsoll_torch.so). Tensors on a GPU work in the same way."""

import sys

import torch

torch.ops.load_library(sys.argv[1])
plimsoll = torch.ops.plimsoll

# As an engine calls DeepSeek's EPLB: two layers of twelve experts on eight GPUs with two slots each.
weight = torch.tensor(
    [
        [90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86],
        [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27],
    ]
)
phy2log, log2phy, logcnt = plimsoll.rebalance_experts(weight, 16, 4, 2, 8)
log2phy = log2phy[:, :, : logcnt.max()]  # as wide as the reference's
print("experts in the slots of layer 0:", *phy2log[0].tolist())
print("slots of its expert 10:", *log2phy[0, 10].tolist(), "and copies:", logcnt[0, 10].item())

# From a history of steps, for an engine that splits every step over the copies.
loads = weight * torch.tensor([1, 2, 1, 3])[:, None, None]
physical_to_logical, copies = plimsoll.place_by_flow(loads, 24, 8)

# Other experts become busy: is a new plan worth the move? A plan looks better than it is on the steps that
# it was made from, so `decide_replan` also takes the plan of each half and judges it on the other half.
later = 100 * torch.cat([loads, loads]).flip(2)
new, of_first_half, of_second_half = (
    plimsoll.align(physical_to_logical, plimsoll.place_by_flow(part, 24, 8)[0], 12, 8)
    for part in (later, later[:4], later[4:])
)
judged = plimsoll.decide_replan(
    later, physical_to_logical, new, 8, of_first_half=of_first_half, of_second_half=of_second_half,
    horizon=1000, expert_bytes=44_000_000, launch=20e-6, per_token=10e-9, flat_below=200,
)
answer = ("keep", "move", "insufficient_evidence")[judged["answer"]]
print(f"{answer}: pays after {judged['break_even_steps']:.0f} steps")

# Every step: 64 tokens choose two experts of layer 0, as popular as before; each copy gets a slot.
popular = torch.repeat_interleave(torch.arange(12), weight[0] // 8)
topk_ids = popular.repeat(2)[:128].reshape(2, 64).t().contiguous()
balancer = plimsoll.lplb(physical_to_logical, copies, 8, None, topk_ids.numel())
counts = torch.zeros(2, 12, dtype=torch.int32)
plimsoll.lplb_count(balancer, topk_ids, counts[0])  # an engine sums the counts of all ranks here
plimsoll.lplb_plan(balancer, counts)
slots = torch.empty_like(topk_ids)
plimsoll.lplb_dispatch(balancer, 0, topk_ids, slots)
balancer.check()
print("token copies of the GPUs:", *torch.bincount(slots.flatten() // 3, minlength=8).tolist())
print("every slot holds the expert:", bool((physical_to_logical[0][slots] == topk_ids).all()))
