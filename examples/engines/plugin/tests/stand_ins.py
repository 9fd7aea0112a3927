# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for the parts of vLLM 0.33.0 and SGLang 0.5.23 around a plan, written anew: their signatures, shapes, waits
and checks. There is no model; the weights of an expert are its number. With a process group, every process is a rank
that counts and holds what its own slots do; without one, this process is all ranks."""

import enum
import functools
import importlib.metadata
import logging
import pkgutil
import queue
import sys
import threading
import types

import numpy
import reference_policies
import torch
import torch.distributed


def modules(contents):
    """Returns modules with the given contents by name, and their packages."""
    made = {}
    for name in contents:
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            made.setdefault(".".join(parts[:end]), types.ModuleType(".".join(parts[:end])))
    for name, content in contents.items():
        vars(made[name]).update(content)
    for name, module in made.items():
        parent, _, own = name.rpartition(".")
        if parent:
            setattr(made[parent], own, module)
    return made


def loaded_plugins(group, log):
    """Returns the functions of a group of entry points. One whose import fails is logged and skipped."""
    functions = {}
    for plugin in importlib.metadata.entry_points(group=group):
        try:
            functions[plugin.name] = plugin.load()
        except Exception:
            log.exception("Failed to load plugin %s", plugin.name)
    return functions


def reduced(tensor, group, op=torch.distributed.ReduceOp.SUM):
    if group is not None:
        torch.distributed.all_reduce(tensor, op=op, group=group)
    return tensor


def of_all_ranks(tensor, group):
    """Returns the tensors of all ranks side by side."""
    if group is None:
        return tensor
    parts = [torch.empty_like(tensor) for _ in range(group.size())]
    torch.distributed.all_gather(parts, tensor.contiguous(), group=group)
    return torch.cat(parts, dim=1)


# --- vLLM ----------------------------------------------------------------------------------------------------------
class DefaultEplbPolicy:
    @classmethod
    def rebalance_experts(cls, weight, num_replicas, num_groups, num_nodes, num_ranks, old_global_expert_indices=None):
        if num_groups % num_nodes != 0:
            num_groups, num_nodes = 1, 1
        experts = weight.float().cpu().numpy().shape[1]
        assert weight.dim() == 2 and num_replicas >= experts and experts % num_groups == 0
        assert num_replicas % num_ranks == 0 and num_ranks % num_nodes == 0
        old = old_global_expert_indices
        shape = num_replicas, num_groups, num_nodes, num_ranks
        new, _ = reference_policies.vllm(weight.float().numpy(), *shape)
        return torch.from_numpy(new if old is None else reference_policies.keep_slots(new, old.numpy(), num_ranks))


class EplbState:
    """Counts loads, has the policy plan from the window, and moves weights: at once, or layer by layer behind a worker
    thread that ends at an exception and tells nobody."""

    def __init__(self, policies, layers, experts, slots, ranks, *, group=None, window=4, interval=4, groups=1, nodes=1,
                 use_async=False):
        self.policy = policies["default"]
        self.experts, self.ranks, self.groups, self.nodes = experts, ranks, groups, nodes
        self.group = group
        self.map = torch.tensor([[*range(experts), *(i % experts for i in range(slots - experts))]] * layers)
        self.interval, self.count = interval, 0
        self.window = torch.zeros(window, layers, slots, dtype=torch.int32)
        self.at = 0
        self.held = self.own(self.map).clone()
        self.rearranged = self.arrivals = 0
        self.use_async, self.rebalanced = use_async, False
        if use_async:
            self.wanted, self.results = threading.Event(), queue.Queue(1)
            threading.Thread(target=self.work, daemon=True).start()

    def own(self, of_slots):
        """Returns the columns of this rank's slots, or all of them where this process is all ranks."""
        if self.group is None:
            return of_slots
        per_rank = of_slots.shape[1] // self.group.size()
        return of_slots[:, self.group.rank() * per_rank:(self.group.rank() + 1) * per_rank]

    def step(self, loads):
        """Counts the loads [layers, experts] of a step, whose tokens are spread evenly over the replicas."""
        of_slots = torch.zeros_like(self.window[0])
        for layer, row in enumerate(self.map.tolist()):
            replicas = numpy.bincount([expert for expert in row if expert >= 0], minlength=self.experts)
            of_slots[layer] = torch.tensor([loads[layer, e] // replicas[e] if e >= 0 else 0 for e in row])
        self.window[self.at % len(self.window)] = 0
        self.own(self.window[self.at % len(self.window)])[:] = self.own(of_slots)
        self.at += 1
        self.count += 1
        if self.rebalanced and self.all_have_a_result():
            layer, row = self.results.get()
            self.move(layer, row)
            self.rebalanced = layer < len(self.map) - 1
        if self.count >= self.interval and not self.rebalanced:
            self.count = 0
            self.rearrange()

    def window_sum(self):
        """Returns the loads of the experts, [layers, experts]. Slots without an expert count to one more column."""
        index = self.map.masked_fill(self.map < 0, self.experts).unsqueeze(0).expand_as(self.window)
        of_experts = torch.zeros(*self.window.shape[:2], self.experts + 1, dtype=torch.int32)
        of_experts.scatter_add_(-1, index.long(), self.window)
        return reduced(of_experts[..., :-1].sum(dim=0), self.group)

    def rearrange(self, ranks_after=None):
        """Plans and moves. `ranks_after`: fewer ranks, the first ones, before the others leave."""
        ranks = ranks_after or self.ranks
        slots = self.map.shape[1] // self.ranks * ranks
        arguments = self.window_sum(), slots, self.groups, self.nodes, ranks
        if not self.use_async or ranks_after:
            new = self.policy.rebalance_experts(*arguments, self.map.clone())
            if ranks_after:
                new = torch.nn.functional.pad(new, (0, self.map.shape[1] - slots), value=-1)
            for layer in range(len(self.map)):
                self.move(layer, new[layer])
        else:
            self.stats, self.rebalanced = arguments, True
            self.wanted.set()

    def work(self):
        try:
            while True:
                self.wanted.wait()
                self.wanted.clear()
                new = self.policy.rebalance_experts(*self.stats, self.map.clone())
                assert new.device == torch.device("cpu")
                for layer, row in enumerate(new):
                    self.results.put((layer, row))
        except Exception as error:
            logging.getLogger("vllm.stand_in").error("async loop error: %s", error)

    def all_have_a_result(self):
        ready = torch.tensor([int(not self.results.empty())])
        return int(reduced(ready, self.group, torch.distributed.ReduceOp.MIN)) == 1

    def move(self, layer, new):
        """Moves the weights of a layer. Each rank fetches what its slots need from the map in use of its own."""
        assert new.shape == self.map[layer].shape and new.dtype == torch.int64, (new.shape, new.dtype)
        everywhere = of_all_ranks(self.held, self.group)[layer].tolist()
        before, after = self.map[layer].tolist(), new.tolist()
        per_rank = len(after) // self.ranks
        for slot in range(len(after)):
            rank = slice(slot // per_rank * per_rank, (slot // per_rank + 1) * per_rank)
            first = after.index(after[slot], rank.start) == slot
            self.arrivals += after[slot] >= 0 and first and after[slot] not in before[rank]
        self.rearranged += layer == 0 and before != after
        weights = [everywhere[before.index(expert)] if expert >= 0 else -1 for expert in after]
        self.held[layer] = self.own(torch.tensor([weights]))[0]
        self.map[layer] = new

    def check(self):
        """Demands equal maps on all ranks, all experts in every layer, and the weights where the map says."""
        maps = of_all_ranks(self.map, self.group).reshape(len(self.map), -1, self.map.shape[1])
        assert (maps == self.map[:, None]).all(), "ranks have different maps"
        assert all(set(row) - {-1} == set(range(self.experts)) for row in self.map.tolist()), "experts are missing"
        assert (of_all_ranks(self.held, self.group) == self.map).all(), "weights are not where the map says"

    def resize(self, ranks, group=None):
        """Gives the state other ranks: new ones have no weights, and of fewer the first ones stay."""
        slots = self.map.shape[1] // self.ranks * ranks
        self.map = torch.nn.functional.pad(self.map, (0, slots - self.map.shape[1]), value=-1)
        if group is None:
            self.held = torch.nn.functional.pad(self.held, (0, slots - self.held.shape[1]), value=-1)
        self.window = torch.nn.functional.pad(self.window, (0, slots - self.window.shape[2]))
        self.ranks, self.group = ranks, group


def vllm_modules(policy=DefaultEplbPolicy, eplb=None):
    """Returns the modules of vLLM that a plugin meets. `eplb.cpu_group`: the group of the ranks, or None."""
    def get_eplb_group():
        assert eplb is not None and eplb.cpu_group is not None, "EPLB group is not initialized"
        return eplb

    def load_general_plugins():
        for function in loaded_plugins("vllm.general_plugins", logging.getLogger("vllm.stand_in")).values():
            function()  # an exception would end the process

    return modules({
        "vllm.distributed.eplb.policy": {"EPLB_POLICIES": {"default": policy}},
        "vllm.distributed.parallel_state": {"get_eplb_group": get_eplb_group},
        "vllm.plugins": {"load_general_plugins": load_general_plugins},
    })


# --- SGLang --------------------------------------------------------------------------------------------------------
class EplbAlgorithm(enum.Enum):
    deepseek = enum.auto()
    deepseek_hierarchical = enum.auto()
    deepseek_vec = enum.auto()
    deepseek_vec_hierarchical = enum.auto()
    elasticity_aware = enum.auto()
    elasticity_aware_hierarchical = enum.auto()


class HookType(enum.Enum):
    BEFORE = "before"
    REPLACE = "replace"


class HookRegistry:
    """Replaces functions after all plugins have run, also where other modules have imported them."""

    def __init__(self):
        self.hooks = {}

    def register(self, target, hook, hook_type=HookType.BEFORE, *, source=None):
        if isinstance(hook, type):
            raise TypeError("a class replaces classes only")
        if hook_type == HookType.REPLACE:
            self.hooks[target] = hook

    def apply_hooks(self):
        for target, hook in self.hooks.items():
            path, _, name = target.rpartition(".")
            owner = pkgutil.resolve_name(path)
            original = getattr(owner, name)

            @functools.wraps(original)
            def wrapper(*arguments, hook=hook, **named):
                return hook(*arguments, **named)

            setattr(owner, name, wrapper)
            for module in list(sys.modules.values()):
                for other, value in list(vars(module).items()):
                    if value is original:
                        setattr(module, other, wrapper)


class Sglang:
    """A server of SGLang: its map in use, which ranks live, and its modules."""

    def __init__(self, layers, experts, slots, ranks, *, groups=None, nodes=1, algorithm="auto"):
        self.layers, self.experts, self.slots, self.ranks = layers, experts, slots, ranks
        self.groups, self.nodes, self.algorithm = groups, nodes, algorithm
        self.active = torch.ones(ranks, dtype=torch.int32)
        self.metadata = None
        self.held = None
        self.registry = HookRegistry()
        self.algorithms = {"rebalance_experts": self.own_algorithm(), "EplbAlgorithm": EplbAlgorithm}
        self.modules = modules({
            "sglang.srt.eplb.eplb_algorithms": self.algorithms,
            "sglang.srt.eplb.expert_location": {"get_global_expert_location_metadata": lambda: self.metadata},
            "sglang.srt.elastic_ep.elastic_ep": {"ElasticEPStateManager": types.SimpleNamespace(
                instance=lambda: None, healthy_rank_state=lambda: self.active)},
            "sglang.srt.plugins.hook_registry": {"HookRegistry": self.registry, "HookType": HookType},
            "sglang.srt.plugins": {"load_plugins": self.load_plugins},
        })

    def load_plugins(self):
        log = logging.getLogger("sglang.stand_in")
        for name, function in loaded_plugins("sglang.srt.plugins", log).items():
            try:
                function()
            except Exception:
                log.exception("Failed to execute general plugin: %s", name)
        self.registry.apply_hooks()

    @staticmethod
    def own_algorithm():
        def rebalance_experts(tokens_per_expert, num_physical_experts, num_local_physical_experts, num_groups,
                              num_nodes, algorithm):
            ranks = num_physical_experts // num_local_physical_experts
            tokens = tokens_per_expert.numpy()
            assert num_physical_experts >= tokens.shape[2] and num_physical_experts % ranks == 0
            hierarchical = algorithm.name.endswith("hierarchical")
            shape = num_physical_experts, num_groups or 1, num_nodes, ranks
            maps, replicas, _ = reference_policies.sglang(tokens, *shape, hierarchical)
            lists = numpy.full((*replicas.shape, replicas.max()), -1)
            for layer, expert in numpy.ndindex(replicas.shape):
                slots = numpy.flatnonzero(maps[layer] == expert)
                lists[layer, expert, :len(slots)] = slots
            return tuple(map(torch.from_numpy, (maps, lists, replicas)))

        return rebalance_experts

    def init_by_eplb(self, logical_count, *, use_flat_topology=False):
        """Plans from loads [steps, layers, experts] or [layers, experts]; returns the new metadata."""
        if len(logical_count.shape) == 2:
            logical_count = logical_count.unsqueeze(0)
        nodes = 1 if use_flat_topology else self.nodes
        name = self.algorithm
        if name == "auto":
            name = "deepseek" if self.groups is None or self.groups % nodes != 0 else "deepseek_hierarchical"
        algorithms = sys.modules["sglang.srt.eplb.eplb_algorithms"]
        of_slots, lists, replicas = algorithms.rebalance_experts(
            tokens_per_expert=logical_count.to("cpu"), num_physical_experts=self.slots,
            num_local_physical_experts=self.slots // self.ranks, num_groups=self.groups, num_nodes=nodes,
            algorithm=EplbAlgorithm[name])
        assert of_slots.shape == (self.layers, self.slots) and of_slots.dtype == torch.int64
        padded = torch.nn.functional.pad(lists, (0, self.slots - lists.shape[-1]), value=-1)
        assert (torch.count_nonzero(padded != -1, dim=-1) == replicas).all()
        return types.SimpleNamespace(physical_to_logical_map_cpu=of_slots.cpu(), lists=padded)

    def update(self, new):
        """Moves weights as the map in use says where they are; ranks that do not live have none and get none."""
        per_rank = self.slots // self.ranks
        live = self.active.bool().repeat_interleave(per_rank)
        after = new.physical_to_logical_map_cpu
        if self.metadata is not None:
            before = self.metadata.physical_to_logical_map_cpu
            for layer in range(self.layers):
                stays = before[layer] == after[layer]
                for slot in (~stays & live).nonzero().flatten().tolist():
                    sources = ((before[layer] == after[layer, slot]) & live).nonzero()
                    assert len(sources) > 0, "an expert has no source"
        for layer in range(self.layers):
            listed = new.lists[layer][new.lists[layer] >= 0]
            assert set(after[layer, live].tolist()) == set(range(self.experts)), "experts are missing"
            assert sorted(listed.tolist()) == live.nonzero().flatten().tolist(), "lists name other slots than live ones"
        self.metadata = new
