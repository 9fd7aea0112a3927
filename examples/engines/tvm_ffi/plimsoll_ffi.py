# SPDX-License-Identifier: Apache-2.0
"""Plimsoll for NumPy and PyTorch, through tvm-ffi.

Planning calls take arrays on the CPU or a GPU and return new arrays of the same kind on the same
device. Objects are made once and keep their memory between steps; their calls write to arrays of the
caller. Ids may be int32 or int64, loads int32, int64, float32 or float64. Planning calls and objects also
take lists, read-only arrays and arrays of another byte order, which are copied; calls of an object take
writable native arrays only. A refused argument raises ValueError. On the CPU, a call runs on one thread
unless `set_threads` asks for more. On a GPU, work is enqueued on the current stream; an object belongs to
the stream that was current when it was made.

The libraries are those in the folder PLIMSOLL_FFI_LIBRARIES, where CMake has built them. Without that
variable they are those beside this file, as in the package plimsoll-eplb, or are compiled once, with the headers
in the folder PLIMSOLL_INCLUDE.
"""

import functools
import os
import pathlib
import re
import sys

import tvm_ffi
import tvm_ffi.cpp

_CUDA = 2  # DLPack's device type
_folder = pathlib.Path(__file__).resolve().parent


@functools.lru_cache(maxsize=None)
def library(is_cuda):
    """Loads the functions for the CPU or for CUDA, and compiles them first if they are not built."""
    name = "plimsoll_cuda" if is_cuda else "plimsoll_host"
    folder = os.environ.get("PLIMSOLL_FFI_LIBRARIES")
    built = pathlib.Path(folder or _folder) / f"lib{name}.so"
    if folder or built.exists() or "PLIMSOLL_INCLUDE" not in os.environ:
        return tvm_ffi.load_module(str(built))
    include = pathlib.Path(os.environ["PLIMSOLL_INCLUDE"]).resolve()
    # A cache knows this folder's files by name only, so the name has the library's version.
    version = re.findall(r"#define PLIMSOLL_VERSION_\w+ (\d+)", (include / "plimsoll/version.hpp").read_text())
    options = {"extra_include_paths": [str(include)], "extra_ldflags": ["-pthread"]}
    if is_cuda:
        options |= {"cuda_files": str(_folder / "plimsoll_cuda.cu"), "extra_cuda_cflags": ["-std=c++20", "-O3"]}
    else:
        options |= {"cpp_files": str(_folder / "plimsoll_host.cpp"), "extra_cflags": ["-std=c++20", "-O3", "-pthread"]}
    return tvm_ffi.cpp.load("_".join([name, *version]), **options)


def set_threads(threads):
    """Runs later calls on the CPU, and objects made later, on up to `threads` threads. They start in a
    call and end in it, so that none spins beside other work or is missing after os.fork()."""
    library(False).set_threads(threads)


def _converted(like, value):
    """Returns a tensor as an array of the kind of `like`, without a copy."""
    if isinstance(value, tvm_ffi.Tensor):
        return sys.modules[type(like).__module__.partition(".")[0]].from_dlpack(value)
    return value


def _input(like, value):
    """Returns what DLPack can pass: an array of the kind of `like` for a list, uint8 for bools, and a copy
    of a NumPy array that is read-only or of another byte order."""
    if isinstance(value, (list, tuple)):
        if type(like).__module__.startswith("torch"):
            value = sys.modules["torch"].as_tensor(value, device=like.device)
        else:
            import numpy

            value = numpy.asarray(value)
    kind = str(getattr(value, "dtype", None))
    if kind == "torch.bool":
        return value.byte()
    if kind == "bool":
        return value.astype("uint8")
    if hasattr(value, "flags") and value.dtype.kind not in "iufV":  # V: bfloat16
        raise ValueError(f"expected an array of integers or floats, got {kind}")
    if hasattr(value, "flags") and not (value.flags.writeable and value.dtype.isnative):
        return value.astype(value.dtype.newbyteorder("="))
    return value


def _inputs(name, arguments):
    """Returns the arguments of a planning call or of an object, whose first one is an array."""
    like = next((one for one in arguments if hasattr(one, "__dlpack_device__")), None)
    try:
        arguments = [_input(like, one) for one in arguments]
    except ValueError as refused:
        raise ValueError(f"{name}: {refused}") from None
    if not hasattr(arguments[0], "__dlpack_device__"):
        raise ValueError(f"{name}: expected an array first, got {type(arguments[0]).__name__}")
    return arguments


def _call(name, function, *arguments):
    """Calls a function of the library. What DLPack and tvm-ffi refuse is a ValueError, too."""
    try:
        return function(*arguments)
    except (BufferError, TypeError) as refused:
        raise ValueError(f"{name}: {refused}") from refused


def _is_cuda(array):
    return array.__dlpack_device__()[0] == _CUDA


def _returned(like, value):
    """Returns a result of a planning call: tensors as arrays of the kind of `like`."""
    if isinstance(value, tvm_ffi.Array):
        return [_returned(like, one) for one in value]
    if isinstance(value, str):
        return str(value)
    value = _converted(like, value)
    # Before 2.1, NumPy imports arrays as read-only, and tvm-ffi takes no such arrays.
    return value.copy() if hasattr(value, "flags") and not value.flags.writeable else value


def _plan(name, *arguments):
    arguments = _inputs(name, arguments)
    results = _call(name, getattr(library(_is_cuda(arguments[0])), name), *arguments)
    if isinstance(results, tvm_ffi.Map):
        return {str(key): _returned(arguments[0], value) for key, value in results.items()}
    return tuple(_returned(arguments[0], value) for value in results)


def rebalance_experts(weight, num_replicas, num_groups, num_nodes, num_gpus):
    """DeepSeek's function: loads [layers, experts] -> physical_to_logical [layers, replicas],
    logical_to_physical [layers, experts, copies] padded with -1, and copies [layers, experts]."""
    return _plan("rebalance_experts", weight, num_replicas, num_groups, num_nodes, num_gpus)


def place_by_flow(loads, slots, ranks, *, nodes=1, active=None, split_evenly=False):
    """Plans from loads [steps, layers, experts] for steps whose tokens are split optimally (by `lplb`)
    or evenly: -> physical_to_logical [layers, slots], copies [layers, experts]."""
    return _plan("place_by_flow", loads, slots, ranks, nodes, active, split_evenly)


def select_planner(loads, slots, ranks, *, nodes=1, active=None, split_evenly=False):
    """Plans with the planner that lasts longest on the history: as `place_by_flow`, and its name."""
    return _plan("select_planner", loads, slots, ranks, nodes, active, split_evenly)


def craft(loads, ranks, *, budget=-1, nodes=1, active=None, split_evenly=True):
    """Gives layers the slots that they are worth, `budget` in all or (-1) as many as pay: as
    `place_by_flow`, with -1 after a layer's slots, and the first slot of each rank."""
    return _plan("craft", loads, ranks, budget, nodes, active, split_evenly)


def gem(loads, tokens, latency, slots, ranks, *, dense_until=0, restarts=30, seed=0):
    """Plans for ranks of unequal speed, which latency float64 [ranks, samples] at int64 tokens
    [samples] describes: as `place_by_flow`."""
    return _plan("gem", loads, tokens, latency, slots, ranks, dense_until, restarts, seed)


def align(in_use, next, experts, ranks, *, nodes=1):
    """Returns the map `next` [layers, slots] with the labels with which the fewest experts move from the
    map `in_use`."""
    return _plan("align", in_use, next, experts, ranks, nodes)[0]


def plan_within(loads, in_use, next, ranks, *, nodes=1, max_moves=2**63 - 1, split_evenly=False, validate=True):
    """Plans from loads [steps, layers, experts], or [layers, experts] for one step, with at most `max_moves`
    moves from the map `in_use`, to `next` or a better plan: -> physical_to_logical, copies. With `validate`,
    nothing moves that does not gain in the half of the steps that it was not planned from."""
    return _plan("plan_within", loads, in_use, next, ranks, nodes, max_moves, split_evenly, validate)


def plan_transfers(in_use, next, experts, ranks, *, nodes=1, one_peer=True):
    """Lists the weights to send, in rounds: int64 [transfers, 10] on the CPU, with layer, expert, source
    rank and slot (-1: from the host), destination rank and slot, round, staging slot (or -1), commit
    round, and kind (0 to 3: copy within the rank, same node, other node, from the host)."""
    return _plan("plan_transfers", in_use, next, experts, ranks, nodes, one_peer)[0]


def decide_replan(
    loads, in_use, next, ranks, *, horizon, expert_bytes, per_token, launch=0.0, per_expert=0.0, flat_below=0.0,
    of_first_half=None, of_second_half=None, nodes=1, active=None, split_evenly=False, one_peer=True,
    local_copy_bandwidth=1.5e12, same_node_bandwidth=450e9, across_nodes_bandwidth=50e9,
    transfer_share=1.0, layer_stall=0.0, least_steps=4, standard_errors=1.0, enough_balancedness=1.0
):
    """Judges from loads [steps, layers, experts] whether the move from the map `in_use` to the map `next` pays
    within `horizon` steps: -> a dict with the "answer", which is "keep", "move" or "insufficient_evidence",
    and with "gain" (in balancedness), "gain_seconds", "standard_error", "move_seconds" and "break_even_steps".
    The same of every layer has names that begin with "layer_"; numbers of layers are float64 [layers] on the
    CPU. "steps", "balancedness", "step_seconds" and "possible_seconds" describe the map in use.

    A rank takes `launch` seconds, `per_expert` for each of its experts, and `per_token` for each token above
    `flat_below`. If `next` was planned from these loads, pass the maps `of_first_half` and `of_second_half`,
    planned in the same way from loads[:steps // 2] and loads[steps // 2:]: each is judged on the other half.
    Bandwidths are in bytes per second."""
    return _plan(
        "decide_replan", loads, in_use, next, ranks, horizon, expert_bytes, per_token, launch, per_expert, flat_below,
        of_first_half, of_second_half, nodes, active, split_evenly, one_peer, local_copy_bandwidth,
        same_node_bandwidth, across_nodes_bandwidth, transfer_share, layer_stall, least_steps,
        standard_errors, enough_balancedness
    )


class _Kept:
    """An object of the library, on the device of the first array; its functions and arrays are
    attributes."""

    def __init__(self, name, like, *arguments):
        made = _call(name, getattr(library(_is_cuda(like)), name), *arguments)
        for member, value in made.items():
            value = _converted(like, value)
            is_function = callable(value)
            setattr(self, "_" * (member in ("check", "counters")) + str(member),
                    functools.partial(_call, f"{name}.{member}", value) if is_function else value)

    def check(self, allow_lost=False):
        """Waits; raises ValueError for what the last plan or update refused, and for token copies of the last
        calls that have no place, such as ids out of range, unless `allow_lost`."""
        self._check(allow_lost)

    def counters(self):
        """Waits, and returns the number of ids of the last calls by outcome."""
        return {str(name): int(value) for name, value in self._counters().items()}


def _device_of(like):
    if not hasattr(like, "__dlpack_device__"):
        raise ValueError(f"like: expected an array, got {type(like).__name__}")
    kind, index = like.__dlpack_device__()
    return tvm_ffi.device("cuda" if kind == _CUDA else "cpu", index)


def lplb(physical_to_logical, replica_count, ranks, max_token_copies, *, rank_offsets=None):
    """Balances every step over a placement. count(topk_ids, counts[experts]); plan(counts[layers,
    experts]); dispatch(layer, topk_ids, slots); check(). Array: quotas[layers, slots].
    update(physical_to_logical, replica_count, rank_offsets or None) takes another placement; waits."""
    maps = _inputs("lplb", (physical_to_logical, replica_count, ranks, rank_offsets))
    return _Kept("lplb", maps[0], *maps, max_token_copies)


def waterfill(like, rank, ranks, slots, top_k, max_tokens, *, nodes=1, weight=1.0, to_all_ranks=False):
    """Spreads the shared expert's rows. count(topk_ids, loads[2, ranks]), whose int64 sums over all ranks
    go to fill(topk_ids, loads, ids[tokens, top_k + 1], weights or None, filled_weights or None);
    check(). update(rank_offsets or None, active or None) takes other slots of the ranks."""
    options = (rank, ranks, nodes, slots, top_k, max_tokens, weight, to_all_ranks)
    return _Kept("waterfill", like, _device_of(like), *options)


def capacity_mask(like, experts, top_k, max_tokens, *, factor=1.0):
    """Limits the tokens of experts. apply(topk_ids, scores, kept_ids, kept_scores, counts[experts])."""
    return _Kept("capacity_mask", like, _device_of(like), experts, top_k, max_tokens, factor)


def least_loaded(
    like, rank, ranks, experts, max_token_copies, *, nodes=1, alpha=1.0, min_chunk=1024, threshold=1.3, max_slots=0
):
    """Spills tokens of overloaded ranks (LLEP). count(topk_ids, counts[experts]); plan(counts[ranks,
    experts]); route(topk_ids, destinations, rows); check(). Arrays: send_counts and receive_counts
    [ranks, ranks], transfers (expert, from, to; transfer_offsets[-1] of them), transfer_offsets.
    update(physical_to_logical[slots], rank_offsets or None, active or None) takes other homes of the experts,
    in up to `max_slots` slots (0: as many as experts)."""
    options = (rank, ranks, nodes, experts, max_token_copies, alpha, min_chunk, threshold, max_slots)
    return _Kept("least_loaded", like, _device_of(like), *options)
