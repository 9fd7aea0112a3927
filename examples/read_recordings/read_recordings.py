#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Converts what an engine recorded to loads [steps, layers, experts] in a .npy file.

Reads one kind of recording at a time:
  SGLang        expert_distribution_recorder_*.pt, of any mode of its recorder
  TensorRT-LLM  the folder of EXPERT_STATISTIC_PATH: meta_info.json and rank*.safetensors
  top-k ids     .npy files [tokens, layers, k], with --experts
Needs NumPy, and PyTorch for .pt files only.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile

import numpy


class InvalidRecording(Exception):
    """A recording or an option that cannot be used."""


def invalid(what, expected, got):
    return InvalidRecording(f"{what}: expected {expected}, got {got}")


def shape_of(array):
    return "[" + ", ".join(str(extent) for extent in array.shape) + "]"


def whole_counts(array, name, dimensions):
    """Returns the array as int64; refuses other types and dimensions, and counts below 0."""
    array = numpy.asarray(array)
    if array.ndim != dimensions or array.dtype.kind not in "iu":
        raise invalid(name, f"integers of {dimensions} dimensions",
                      f"{array.dtype} {shape_of(array)}")
    if array.size and array.min() < 0:
        raise invalid(name, "numbers of at least 0", array.min())
    return array.astype(numpy.int64)


def ranges(ids):
    """Writes ascending numbers as plan_experts reads them: 3,5:8 is 3, 5, 6, 7."""
    parts = []
    for number in ids:
        if parts and parts[-1][1] == number:
            parts[-1][1] = number + 1
        else:
            parts.append([number, number + 1])
    return ",".join(f"{a}:{b}" if b - a > 1 else str(a) for a, b in parts)


def check_ranks(ranks, name):
    missing = sorted(set(range(max(ranks, default=0) + 1)) - set(ranks))
    if missing:
        raise invalid(name, "recordings of all ranks", f"none of rank {ranges(missing)}")


def joined(results):
    """Joins loads [(name, [steps, layers, experts])] one after the other."""
    first, loads = results[0]
    for name, more in results[1:]:
        if more.shape[1:] != loads.shape[1:]:
            raise invalid(name, f"[layers, experts] of {shape_of(loads[0])}, as in {first}",
                          shape_of(more[0]))
    return numpy.concatenate([more for _, more in results])


# SGLang, modes stat and stat_approx -----------------------------------------------------------


def steps_in_order(rows, oldest, name):
    """Returns the rows with load of a buffer, [rows, layers, experts], from oldest to newest.

    SGLang's ring begins with zeros, and its file does not say where the recorder writes next. The
    position even survives the start of another recording, so the oldest row can be anywhere.
      - The rows without load are adjacent (the last row and the first are neighbours): the ring is
        not full, and the oldest step follows them.
      - All rows have load: a full ring, whose oldest row is unknown, or a buffer without a limit,
        which begins with the oldest. `oldest` must tell.
      - Rows without load lie apart: passes without tokens were recorded. `oldest` must tell.
    "unknown" keeps the order of the rows, which is that of time but for where it begins.
    """
    count = len(rows)
    loaded = rows.any(axis=(1, 2))
    if not loaded.any():
        raise invalid(name, "a step with load", f"{count} rows of zeros")
    if oldest not in (None, "unknown") and oldest >= count:
        raise invalid("--oldest", f"a row of {name}, 0 to {count - 1}", oldest)
    begin = 0 if oldest == "unknown" or count == 1 else oldest
    if begin is None:
        begins = numpy.flatnonzero(loaded & ~numpy.roll(loaded, 1))
        if len(begins) != 1:
            gaps = f"rows without load in {len(begins)} places" if len(begins) else "load in all"
            raise invalid(
                name, f"to find the oldest of {count} rows", f"{gaps}: give --oldest ROW (0 for a "
                "buffer without a limit; for a ring, the passes recorded since the server started, "
                f"modulo {count}), or --oldest unknown if the order of the steps does not matter")
        begin = int(begins[0])
    order = (begin + numpy.arange(count)) % count
    order = order[loaded[order]]
    first = "in the order of the rows" if oldest == "unknown" else f"the oldest is row {order[0]}"
    print(f"{name}: {len(order)} of {count} rows have load, {first}")
    return rows[order]


def read_stat(recording, oldest, name):
    rows = numpy.asarray(recording["logical_count"])
    rows = rows[numpy.newaxis] if rows.ndim == 2 else rows  # the sum of all steps
    return steps_in_order(whole_counts(rows, f"{name}: logical_count", 3), oldest, name)


# SGLang, modes per_pass and per_token ---------------------------------------------------------


def read_passes(recordings):
    """Sums the counts of slots in the ranks' files [(name, recording)] and maps them to experts."""
    first, expert_of, passes = recordings[0][0], None, {}
    for name, recording in recordings:
        slots = whole_counts(recording["last_physical_to_logical_map"],
                             f"{name}: last_physical_to_logical_map", 2)
        expert_of = slots if expert_of is None else expert_of
        if not numpy.array_equal(slots, expert_of):
            raise invalid(name, f"the last_physical_to_logical_map of {first}",
                          "another one: experts moved between these recordings, so read them apart")
        for record in recording["records"]:
            number, rank = record["forward_pass_id"], record["rank"]
            counts = whole_counts(record["global_physical_count"],
                                  f"{name}: global_physical_count of pass {number}", 2)
            if counts.shape != expert_of.shape:
                raise invalid(f"{name}: global_physical_count of pass {number}",
                              f"{shape_of(expert_of)}, as the map", shape_of(counts))
            part = rank, record.get("gatherer_key")
            if part in passes.setdefault(number, {}):
                raise invalid(name, "each pass of a rank once",
                              f"pass {number} of rank {rank} again")
            passes[number][part] = counts
    if not passes:
        raise invalid(first, "records of passes", "none")
    ranks = {rank for parts in passes.values() for rank, _ in parts}
    check_ranks(ranks, first)
    # Ranks start and stop their recordings at slightly different passes.
    whole = [number for number in sorted(passes) if {rank for rank, _ in passes[number]} == ranks]
    if not whole:
        raise invalid(first, "a pass that all ranks recorded", f"{len(passes)} of some ranks")
    if len(whole) < len(passes):
        print(f"left out {len(passes) - len(whole)} of {len(passes)} passes, which not all "
              f"{len(ranks)} ranks recorded")
    layers = numpy.arange(len(expert_of))[:, numpy.newaxis]
    loads = numpy.zeros((len(whole), len(layers), int(expert_of.max()) + 1), numpy.int64)
    for step, number in enumerate(whole):
        numpy.add.at(loads[step], (layers, expert_of), sum(passes.pop(number).values()))
    return loads


def load_torch(name):
    try:
        import torch
    except ImportError:
        raise invalid(name, "PyTorch, to read it", "no module torch") from None
    try:  # SGLang saves tensors of its GPU
        recording = torch.load(name, map_location="cpu", weights_only=True)
    except Exception as error:  # of another type for every defect
        raise invalid(name, "a file of PyTorch", " ".join(str(error).split())) from None
    keys = set(recording) if isinstance(recording, dict) else set()
    if len(keys & {"logical_count", "records"}) != 1:
        raise invalid(name, "a recording of SGLang, with logical_count or records",
                      sorted(keys) or type(recording).__name__)
    return recording


def read_sglang(files, oldest):
    recordings = [(name, load_torch(name)) for name in files]
    if len({"records" in recording for _, recording in recordings}) > 1:
        raise invalid(files[0], "files of one mode", "stat and another one")
    if "records" in recordings[0][1]:
        if oldest is not None:
            raise invalid("--oldest", "a file of the mode stat",
                          f"{files[0]}, whose passes have ids")
        try:
            return read_passes(recordings)
        except KeyError as error:
            raise invalid(files[0], f"the key {error}, as SGLang writes it", "none") from None
    if oldest not in (None, "unknown") and len(files) > 1:
        raise invalid("--oldest", "one file", len(files))
    return joined([(name, read_stat(recording, oldest, name)) for name, recording in recordings])


# TensorRT-LLM ---------------------------------------------------------------------------------


def safetensors(file):
    """Yields names and arrays of a file: the size of a JSON header, the header, the elements."""
    data = file.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8:begin])
        header.pop("__metadata__", None)
        for key, tensor in header.items():
            first, last = tensor["data_offsets"]
            dtype = {"I64": "<i8", "I32": "<i4"}[tensor["dtype"]]
            elements = numpy.frombuffer(data[begin + first:begin + last], dtype)
            yield key, elements.reshape(tensor["shape"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise invalid(file, "safetensors of int32 or int64", repr(error)) from None


def read_tensorrt_llm(folder):
    """Returns the loads, and the layers of the model that their rows are."""
    meta = folder / "meta_info.json"
    try:
        experts = int(json.loads(meta.read_text())["num_experts"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise invalid(meta, "JSON with num_experts", repr(error)) from None
    files = {file.stem[4:]: file for file in folder.glob("rank*.safetensors")}
    files = {int(rank): file for rank, file in files.items() if rank.isdecimal()}  # not rank*_raw
    check_ranks(files, folder)
    counts = {}
    for rank in sorted(files):
        for key, array in safetensors(files[rank]):
            name = f"{files[rank]}: {key}"
            step, separator, layer = key.partition("_")
            if not (step.isdecimal() and separator and layer.isdecimal()):
                raise invalid(name, "a name ITERATION_LAYER", key)
            array = whole_counts(array, name, 1)
            if len(array) != experts:
                raise invalid(name, f"{experts} counts, as meta_info.json says", len(array))
            cell = int(step), int(layer)
            counts[cell] = counts.get(cell, 0) + array
    steps, layers = (sorted(set(ids)) for ids in zip(*counts)) if counts else ((), ())
    for step, layer in ((step, layer) for step in steps for layer in layers):
        if (step, layer) not in counts:
            raise invalid(folder, "every layer in every iteration", f"{step} without layer {layer}")
    if not counts:
        raise invalid(folder, "counts", "none")
    return numpy.array([[counts[step, layer] for layer in layers] for step in steps]), layers


# Top-k ids ------------------------------------------------------------------------------------


AXES = ("tokens,layers,k", "layers,tokens,k")
MOST_LAYERS = 256  # of any model


def chosen_rows(ids):
    """Tells which rows [tokens, layers] a router can have chosen: those that repeat no id but -1.

    Engines return ids in buffers that start as zeros. Rows of dense layers, and of tokens that were
    not forwarded, are never written, so that they repeat one id. With k = 1 that cannot be seen.
    """
    ordered = numpy.sort(ids, axis=2)
    repeats = (ordered[:, :, 1:] == ordered[:, :, :-1]) & (ordered[:, :, 1:] >= 0)
    return ~repeats.any(axis=2)


def layers_come_first(ids, chosen, experts):
    """Tells whether the first dimension is that of the layers, in place of the tokens.

    Each layer prefers experts of its own, so two tokens have the same expert in one layer more often
    than one token has in two layers; certainly not less often. A few thousand rows show which.
    """
    if ids.shape[1] > MOST_LAYERS:
        return True
    ids, chosen = ids[:2048, :2048], chosen[:2048, :2048]
    routed = chosen[:, :, numpy.newaxis] & (ids >= 0)
    of_row = routed.sum(axis=2)
    rates = []
    for axis in (0, 1):
        slices = numpy.arange(ids.shape[axis]).reshape(-1, *[1] * (2 - axis))
        cells = numpy.bincount((ids + experts * slices)[routed], minlength=experts)
        size = of_row.sum(axis=1 - axis)
        pairs = (size * (size - 1)).sum() - (of_row * (of_row - 1)).sum()  # a row has no expert twice
        rates.append(((cells * (cells - 1)).sum() / max(pairs, 1), max(pairs, 1)))
    (first, first_pairs), (second, second_pairs) = rates
    error = (first / first_pairs + second / second_pairs) ** 0.5
    return first > 1.1 * second and first - second > 10 * error


def left_out(chosen):
    """Names the rows that no router can have chosen, by layer."""
    tokens = len(chosen)
    missing = (~chosen).sum(axis=0)
    parts = []
    for count in sorted(set(missing[missing > 0].tolist()), reverse=True):
        layers = numpy.flatnonzero(missing == count).tolist()
        parts.append(f"{count} of {tokens} in layer{'s' if len(layers) > 1 else ''} {ranges(layers)}")
    return "; ".join(parts)


def read_ids(files, experts, tokens_per_step, axes):
    """Counts ids [tokens, layers, k]. A step has `tokens_per_step` tokens of a file, or all."""
    if experts is None:
        raise invalid("--experts", f"the number of experts of a layer, to count {files[0]}", "none")
    results = []
    for name in files:
        try:
            ids = numpy.load(name, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise invalid(name, "a .npy file", error) from None
        if ids.ndim != 3 or ids.dtype.kind not in "iu" or 0 in ids.shape:
            raise invalid(name, "top-k ids [tokens, layers, k]", f"{ids.dtype} {shape_of(ids)}")
        for id in (ids.min(), ids.max()):
            if not -1 <= id < experts:
                raise invalid(name, f"ids from -1 (not routed) to {experts - 1}", id)
        ids = ids.astype(numpy.int64)
        ids = ids.swapaxes(0, 1) if axes == AXES[1] else ids
        chosen = chosen_rows(ids)
        if axes is None and layers_come_first(ids, chosen, experts):
            raise invalid(name, "top-k ids [tokens, layers, k]",
                          f"{shape_of(ids)}, whose first dimension seems to be the layers: give --axes "
                          f"{AXES[1]}, or --axes {AXES[0]} if it is not")
        if not (chosen[:, :, numpy.newaxis] & (ids >= 0)).any():
            raise invalid(name, "the ids of a routed token", "none: rows without an id, or with one twice")
        if not chosen.all():
            print(f"{name}: left out rows that repeat an id, which no router chooses: {left_out(chosen)}")
        tokens, layers, _ = ids.shape
        size = tokens_per_step or tokens
        loads = numpy.empty((-(-tokens // size), layers, experts), numpy.int64)
        for step in range(len(loads)):
            part = slice(step * size, (step + 1) * size)
            some = ids[part]
            routed = chosen[part, :, numpy.newaxis] & (some >= 0)
            cells = (some + experts * numpy.arange(layers)[:, numpy.newaxis])[routed]
            loads[step] = numpy.bincount(cells, minlength=layers * experts).reshape(layers, experts)
        results.append((name, loads))
    return joined(results)


# The program ----------------------------------------------------------------------------------


def row_or_unknown(text):
    return text if text == "unknown" else number(text, 0, "a row or unknown")


def positive(text):
    return number(text, 1, "a positive number")


def number(text, least, expected):
    if not (text.isdecimal() and text.isascii()) or int(text) < least:
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text}")
    return int(text)


def options(arguments):
    parser = argparse.ArgumentParser(
        prog="read_recordings", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+", metavar="INPUT",
                        help="files of one kind, or one folder")
    parser.add_argument("--output", required=True, metavar="LOADS.npy")
    parser.add_argument("--oldest", type=row_or_unknown, metavar="ROW|unknown",
                        help="SGLang, mode stat: the row of the oldest step; needed if the program "
                             "cannot find it")
    parser.add_argument("--experts", type=positive, metavar="E",
                        help="top-k ids: number of experts of a layer")
    parser.add_argument("--tokens-per-step", type=positive, metavar="N",
                        help="top-k ids: tokens of a step; without it, each file is a step")
    parser.add_argument("--axes", choices=AXES,
                        help="top-k ids: the dimensions of the files; without it, tokens,layers,k, "
                             "and files that seem to have others are refused")
    return parser.parse_args(arguments)


def read(inputs, oldest=None, experts=None, tokens_per_step=None, axes=None):
    """Returns the loads, and the layers of the model that their rows are, or None for all."""
    inputs = [pathlib.Path(name) for name in inputs]
    kinds = {"folder" if path.is_dir() else path.suffix for path in inputs}
    kind = kinds.pop()
    if kinds or kind not in ("folder", ".pt", ".npy") or (kind == "folder" and len(inputs) > 1):
        raise invalid("INPUT", "files .pt of SGLang, files .npy of top-k ids, or one folder of "
                      "TensorRT-LLM", ", ".join(map(str, inputs)))
    for option, value, its_kind in (("--oldest", oldest, ".pt"), ("--experts", experts, ".npy"),
                                    ("--tokens-per-step", tokens_per_step, ".npy"),
                                    ("--axes", axes, ".npy")):
        if value is not None and kind != its_kind:
            raise invalid(option, f"{its_kind} files", inputs[0])
    if kind == "folder":
        return read_tensorrt_llm(inputs[0])
    if kind == ".pt":
        return read_sglang(inputs, oldest), None
    return read_ids(inputs, experts, tokens_per_step, axes), None


def save(loads, output):
    """Writes the file whole or not at all."""
    with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(output))) as folder:
        part = os.path.join(folder, "loads.npy")
        numpy.save(part, loads)
        os.replace(part, output)


def main(arguments):
    chosen = options(arguments)
    try:
        loads, layer_ids = read(chosen.inputs, chosen.oldest, chosen.experts,
                                chosen.tokens_per_step, chosen.axes)
        save(loads, chosen.output)
    except (InvalidRecording, OSError) as error:
        print(f"read_recordings: {error}", file=sys.stderr)
        return 2
    steps, layers, experts = loads.shape
    print(f"{chosen.output}: {steps} steps, {layers} layers, {experts} experts")
    loaded = numpy.flatnonzero(loads.any(axis=(0, 2)))
    if layer_ids is not None:
        print(f"the rows are layers of the model: plan_experts --layer-ids {ranges(layer_ids)}")
    elif len(loaded) < layers and len(loaded) == loaded[-1] - loaded[0] + 1:
        print(f"only some layers have load: plan_experts --layers {loaded[0]}:{loaded[-1] + 1}")
    elif len(loaded) < layers:
        print(f"only some layers have load: {ranges(loaded.tolist())}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
