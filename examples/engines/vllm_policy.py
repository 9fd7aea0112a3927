# SPDX-License-Identifier: Apache-2.0
"""EPLB policy of vLLM that plans with Plimsoll and keeps experts where they are."""

import plimsoll_ffi


class PlimsollPolicy:
    """Has the method of vLLM's AbstractEplbPolicy."""

    @classmethod
    def rebalance_experts(cls, weight, num_replicas, num_groups, num_nodes, num_ranks,
                          old_global_expert_indices=None):
        """Plans as vLLM's default policy does; then renames ranks so that the fewest experts move.
        Layers without load keep the map in use.

        weight: loads [layers, experts]; old_global_expert_indices: the map in use, [layers, slots].
        Returns the expert of each slot, int64 [layers, num_replicas], in CPU memory.
        """
        weight, old = on_cpu(weight), on_cpu(old_global_expert_indices)
        new, _, _ = plimsoll_ffi.rebalance_experts(weight, num_replicas, num_groups, num_nodes,
                                                   num_ranks)
        if old is None or old.shape != new.shape:  # as ranks join or leave
            return new
        # Only the hierarchical policy, which vLLM takes in this case, keeps groups on one node.
        nodes = num_nodes if num_groups % num_nodes == 0 else 1
        aligned = plimsoll_ffi.align(old, new, weight.shape[1], num_ranks, nodes=nodes)
        for layer, loads in enumerate(weight):
            if not loads.any() and len(set(old[layer].tolist()) - {-1}) == weight.shape[1]:
                aligned[layer] = old[layer]
        return aligned


def on_cpu(array):
    return array.cpu() if hasattr(array, "cpu") else array


def register():
    """Replaces vLLM's policy `default`. Runs in every process as a plugin, before EPLB starts."""
    from vllm.distributed.eplb.policy import EPLB_POLICIES

    EPLB_POLICIES["default"] = PlimsollPolicy
