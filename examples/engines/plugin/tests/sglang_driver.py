# SPDX-License-Identifier: Apache-2.0
"""sglang_driver.py own|plimsoll [ALGORITHM]: runs the installed SGLang's init_by_eplb and its ExpertLocationUpdater
with the canary on four processes over gloo, on the CPU, with the plugins that SGLang loads itself. Replaced are the
settings of the server, the model, and the functions of a device. Checks weights, maps and completeness on every rank
after every change."""

import importlib
import os
import sys
import types

import drive
import numpy
import torch

RANKS, LAYERS, EXPERTS, REDUNDANT, STEPS, ROUNDS = 4, 6, 32, 8, 20, 12
SLOTS = EXPERTS + REDUNDANT
PER_RANK = SLOTS // RANKS


def run(rank, who, algorithm):
    os.environ["SGLANG_EXPERT_LOCATION_UPDATER_CANARY"] = "1"
    from sglang.srt.elastic_ep import elastic_ep
    from sglang.srt.eplb import eplb_algorithms, expert_location, expert_location_updater

    assert hasattr(eplb_algorithms.rebalance_experts, "__wrapped__") == (who == "plimsoll")
    moe = types.SimpleNamespace(ep_join_mode=None, ep_num_redundant_experts=REDUNDANT, eplb_algorithm=algorithm,
                                ep_dispatch_algorithm="static", init_expert_location="trivial", moe_a2a_backend="none")
    parallel = types.SimpleNamespace(ep_size=RANKS, nnodes=1, elastic_ep_initial_size=None, tp_size=RANKS,
                                     ep_join_rank_offset=0)
    device = types.SimpleNamespace(device="cpu")
    for module in (expert_location, expert_location_updater):
        module.get_exec = lambda: types.SimpleNamespace(moe=moe)
        module.get_parallel = lambda: parallel
        module.get_device = lambda: device
    expert_location._prefer_same_node_experts = lambda: False
    sizes = expert_location.ModelConfigForExpertLocation(num_layers=LAYERS, num_logical_experts=EXPERTS,
                                                         num_groups=None)
    expert_location.ModelConfigForExpertLocation.from_model_config = staticmethod(lambda config: sizes)
    elastic_ep.ElasticEPStateManager.instance = staticmethod(lambda: None)
    elastic_ep.ElasticEPStateManager.healthy_rank_state = staticmethod(lambda: torch.ones(RANKS, dtype=torch.int32))
    torch.get_device_module = lambda *_: types.SimpleNamespace(empty_cache=lambda: None, synchronize=lambda: None)
    metadata = expert_location.ExpertLocationMetadata.init_trivial(None, rank)
    for module in (expert_location, expert_location_updater):
        module.get_global_expert_location_metadata = lambda: metadata
    own = slice(rank * PER_RANK, (rank + 1) * PER_RANK)
    weights = {layer: [torch.tensor([[float(drive.value(layer, expert))] * 8 for expert in row[own].tolist()])]
               for layer, row in enumerate(metadata.physical_to_logical_map_cpu)}
    updater = expert_location_updater.ExpertLocationUpdater()

    arrivals, balancedness = 0, []
    steps = drive.loads(STEPS * ROUNDS, LAYERS, EXPERTS, STEPS * 3)
    for turn in range(ROUNDS):
        recorded = [next(steps) for _ in range(STEPS)]
        before = metadata.physical_to_logical_map_cpu.clone()
        if turn:
            balancedness += [drive.balancedness(drive.of_slots(loads, before), RANKS) for loads in recorded]
        new = expert_location.ExpertLocationMetadata.init_by_eplb(None, torch.from_numpy(numpy.stack(recorded)))
        missing = updater.update(weights, new, list(range(LAYERS)), nnodes=1, rank=rank)
        after = metadata.physical_to_logical_map_cpu
        assert not missing, missing
        arrivals += drive.arrivals(before, after, RANKS)
        drive.check(after, [[weight[:, 0] for weight in weights[layer]] for layer in range(LAYERS)], rank, RANKS)
        drive.check_equal(after, None)
    if rank == 0:
        share = 100 * arrivals / (ROUNDS * LAYERS * SLOTS)
        print(f"SGLang, {drive.named(who)}, {algorithm}: {arrivals} arrivals ({share:.1f} % of the slots), "
              f"balancedness {numpy.mean(balancedness):.4f}", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "plimsoll":
        from sglang.srt.plugins import load_plugins

        load_plugins()
    importlib.import_module("sglang.srt.eplb.expert_location_updater")  # once, before the processes part
    drive.four_ranks(run, sys.argv[1], (sys.argv[2:] or ["auto"])[0])
