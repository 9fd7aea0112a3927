# SPDX-License-Identifier: Apache-2.0
"""EPLB policy of vLLM that plans with Plimsoll and keeps experts where they are."""

import plimsoll_ffi


class PlimsollPolicy:
    """Has the method of vLLM's AbstractEplbPolicy."""

    # Budget of one call, set by `register`: the largest share of the slots, 0 to 1, that move to
    # another rank. None: as many as the plan of vLLM's default policy needs.
    max_moves_share = None

    @classmethod
    def rebalance_experts(cls, weight, num_replicas, num_groups, num_nodes, num_ranks,
                          old_global_expert_indices=None):
        """Plans as vLLM's default policy does; then renames ranks so that the fewest experts move.
        With a budget, returns the plan that balances single steps best within it, or the map in use.
        Layers without load keep the map in use.

        weight: loads [layers, experts], or [steps, layers, experts], oldest first;
        old_global_expert_indices: the map in use, [layers, slots].
        Returns the expert of each slot, int64 [layers, num_replicas], in CPU memory.
        """
        weight, old = on_cpu(weight), on_cpu(old_global_expert_indices)
        steps = weight if len(weight.shape) == 3 else weight[None]
        weight = steps.sum(0)
        # Only the hierarchical policy, which vLLM takes in this case, keeps groups on one node.
        nodes = num_nodes if num_groups % num_nodes == 0 else 1
        if cls.max_moves_share is not None and nodes > 1:
            raise ValueError("rebalance_experts: max_moves_share: expected None, since groups stay on "
                             f"their {nodes} nodes, got {cls.max_moves_share}")
        new, _, _ = plimsoll_ffi.rebalance_experts(weight, num_replicas, num_groups, num_nodes,
                                                   num_ranks)
        if old is None or old.shape != new.shape:  # as ranks join or leave
            return new
        experts = weight.shape[1]
        has_all = [len(set(row.tolist()) - {-1}) == experts for row in old]
        if cls.max_moves_share is not None and all(has_all):
            # vLLM spreads tokens evenly over the copies of an expert.
            max_moves = int(cls.max_moves_share * len(old) * num_replicas)
            within, _ = plimsoll_ffi.plan_within(steps, old, new, num_ranks, max_moves=max_moves,
                                                 split_evenly=True)
            for row, in_use in zip(within, old):
                if row.min() < 0:  # more slots of a rank than experts: vLLM has no empty slots
                    row[:] = in_use
            return within
        aligned = plimsoll_ffi.align(old, new, experts, num_ranks, nodes=nodes)
        for layer, loads in enumerate(weight):
            if not loads.any() and has_all[layer]:
                aligned[layer] = old[layer]
        return aligned


def on_cpu(array):
    return array.cpu() if hasattr(array, "cpu") else array


def register(max_moves_share=None):
    """Replaces vLLM's policy `default`. Runs in every process as a plugin, before EPLB starts."""
    from vllm.distributed.eplb.policy import EPLB_POLICIES

    if max_moves_share is not None and not 0 <= max_moves_share <= 1:
        raise ValueError(f"register: max_moves_share: expected 0 to 1 or None, got {max_moves_share}")
    PlimsollPolicy.max_moves_share = max_moves_share
    EPLB_POLICIES["default"] = PlimsollPolicy
