# SPDX-License-Identifier: Apache-2.0
"""vllm_driver.py own|plimsoll [async]: runs the installed vLLM's EplbState, its transfers and its worker thread on four
processes over gloo, on the CPU, with the plugins that vLLM loads itself. Replaced are the model, the getters of process
groups, and events and streams of a device. Checks weights, maps and completeness on every rank after every change."""

import importlib
import os
import sys
import threading
import time
import types

import drive
import numpy
import torch
import torch.distributed as dist

RANKS, LAYERS, EXPERTS, REDUNDANT, STEPS, ROUNDS = 4, 6, 32, 8, 20, 12
SLOTS = EXPERTS + REDUNDANT
PER_RANK = SLOTS // RANKS


class Event:
    """An event of a device that does nothing asynchronously."""

    def __init__(self, *arguments, **named):
        pass

    def record(self, *arguments):
        pass

    wait = synchronize = record

    def elapsed_time(self, other):
        return 0.0


class Model:
    num_routed_experts = num_logical_experts = EXPERTS
    num_redundant_experts, num_physical_experts, num_local_physical_experts = REDUNDANT, SLOTS, PER_RANK
    num_moe_layers, num_expert_groups = LAYERS, 1
    moe_layers = ()

    def __init__(self, held):
        self.expert_weights = [[torch.stack([torch.full((width,), float(drive.value(layer, expert))) for expert in row])
                                for width in (16, 8)] for layer, row in enumerate(held)]

    def set_eplb_state(self, *arguments):
        pass


def run(rank, who, use_async):
    torch.Event = Event
    torch.accelerator.current_stream = lambda *_: types.SimpleNamespace(synchronize=lambda: None)
    torch.accelerator.set_stream = lambda *_: None
    import vllm.distributed.eplb.async_worker as worker
    import vllm.distributed.eplb.eplb_communicator as communicator
    import vllm.distributed.eplb.eplb_state as eplb_state
    import vllm.distributed.parallel_state as parallel_state

    eplb_state.PIN_MEMORY = communicator.PIN_MEMORY = False
    assert hasattr(eplb_state.EPLB_POLICIES["default"], "plimsoll_planner") == (who == "plimsoll")
    groups = [dist.new_group(backend="gloo") for _ in range(2)]
    ep, eplb = (types.SimpleNamespace(device_group=group, cpu_group=group, world_size=RANKS, device_communicator=None,
                                      device=torch.device("cpu")) for group in groups)
    eplb_state.get_ep_group = lambda: ep
    eplb_state.get_eplb_group = worker.get_eplb_group = parallel_state.get_eplb_group = lambda: eplb
    eplb_state.get_node_count = lambda: 1
    initial = eplb_state.EplbState.build_initial_global_physical_to_logical_map(EXPERTS, REDUNDANT)
    model = Model([initial[rank * PER_RANK:(rank + 1) * PER_RANK]] * LAYERS)
    options = types.SimpleNamespace(window_size=STEPS // 2, step_interval=STEPS, use_async=use_async, policy="default",
                                    communicator="torch_gloo", log_balancedness=False, log_balancedness_interval=1,
                                    migration_batching_enabled=False)
    state = eplb_state.EplbState(types.SimpleNamespace(eplb_config=options, enable_elastic_ep=False, num_ubatches=0,
                                                       data_parallel_size=RANKS), torch.device("cpu"))
    state.validate_ep_configuration = lambda model: None
    state.add_model(model, types.SimpleNamespace(compute_hash=lambda: "model", model="model"), "model")
    of_model = state.model_states["model"]
    if use_async:
        def work():
            try:
                worker.transfer_run_periodically(state, types.SimpleNamespace(synchronize=lambda: None))
            except Exception as error:
                print(f"rank {rank}: the worker ended: {error}", flush=True)

        threading.Thread(target=work, daemon=True).start()

    arrivals = changed = 0
    balancedness = []
    for step, loads in enumerate(drive.loads(STEPS * ROUNDS, LAYERS, EXPERTS, STEPS * 3)):
        of_slots = drive.of_slots(loads, before := of_model.physical_to_logical_map.clone())
        mine = numpy.zeros_like(of_slots)
        own = slice(rank * PER_RANK, (rank + 1) * PER_RANK)
        mine[:, own] = of_slots[:, own]
        of_model.expert_load_pass.copy_(torch.from_numpy(mine.round().astype(numpy.int32)))
        if step >= STEPS:
            balancedness.append(drive.balancedness(of_slots, RANKS))
        state.step()
        if use_async:
            time.sleep(0.02)
        after = of_model.physical_to_logical_map
        if not torch.equal(before, after):
            changed += 1
            arrivals += drive.arrivals(before, after, RANKS)
            drive.check(after, [[weight[:, 0] for weight in layer] for layer in model.expert_weights], rank, RANKS)
            if not use_async:
                drive.check_equal(after, ep.device_group)
    if not use_async:
        state.step(is_profile=True)
    drive.check_equal(of_model.physical_to_logical_map, ep.device_group)
    if rank == 0:
        share = "" if use_async else f" ({100 * arrivals / (ROUNDS * LAYERS * SLOTS):.1f} % of the slots)"
        thread = ", worker thread" if use_async else ""
        print(f"vLLM, {drive.named(who)}{thread}: {changed} changes, {arrivals} arrivals{share}, balancedness "
              f"{numpy.mean(balancedness):.4f}", flush=True)


if __name__ == "__main__":
    os.environ["VLLM_LOGGING_LEVEL"] = os.environ.get("VLLM_LOGGING_LEVEL", "WARNING")
    if sys.argv[1] == "plimsoll":
        from vllm.plugins import load_general_plugins

        load_general_plugins()
    importlib.import_module("vllm.distributed.eplb.eplb_state")  # once, before the processes part

    drive.four_ranks(run, sys.argv[1], "async" in sys.argv[2:])
