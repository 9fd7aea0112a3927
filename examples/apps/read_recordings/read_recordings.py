#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Converts what an engine recorded to loads [steps, layers, experts] in a .npy file.

Reads one kind of recording at a time:
  SGLang        expert_distribution_recorder_*.pt, of any mode of its recorder
  SGLang        its older recordings, .csv files of all ranks: layer_id, expert_id, count
  TensorRT-LLM  the folder of EXPERT_STATISTIC_PATH: meta_info.json and rank*.safetensors
  RTP-LLM       eplb_stats_rank*_step*_*.json of all ranks
  Megatron-LM   folders of trace v1: manifest.json and tensors/expert_ids.pt
  top-k ids     .npy files [tokens, layers, k], with --experts
Needs NumPy, and PyTorch for .pt files only.
"""

import argparse
import csv
import hashlib
import io
import json
import os
import pathlib
import stat
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


def table_of(counts, name):
    """Arranges counts {(step, layer): [experts]} by step and layer, and returns the layers, too."""
    steps, layers = (sorted(set(ids)) for ids in zip(*counts))
    for step, layer in ((step, layer) for step in steps for layer in layers):
        if (step, layer) not in counts:
            raise invalid(name, "every layer in every iteration", f"{step} without layer {layer}")
    return numpy.array([[counts[step, layer] for layer in layers] for step in steps]), layers


# SGLang, modes stat and stat_approx -----------------------------------------------------------


def steps_in_order(rows, oldest, name):
    """Returns the rows with load of a buffer, [rows, layers, experts], from oldest to newest.

    SGLang's ring begins with zeros, and its file does not say where the recorder writes next. The
    position even survives the start of another recording, so the oldest row can be anywhere.
      - The rows without load are adjacent (the last row and the first are neighbors): the ring is
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
        return torch.load(name, map_location="cpu", weights_only=True)
    except Exception as error:  # of another type for every defect
        raise invalid(name, "a file of PyTorch", " ".join(str(error).split())) from None


def load_sglang(name):
    recording = load_torch(name)
    keys = set(recording) if isinstance(recording, dict) else set()
    if len(keys & {"logical_count", "records"}) != 1:
        raise invalid(name, "a recording of SGLang, with logical_count or records",
                      sorted(keys) or type(recording).__name__)
    return recording


def read_sglang(files, oldest):
    recordings = [(name, load_sglang(name)) for name in files]
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


# SGLang, older versions, as CSV ---------------------------------------------------------------


MOST_EXPERTS = 65535  # of a layer
CSV_NAMES = {"layer_id": "layer", "expert_id": "expert", "count": "load"}


def csv_number(text, most, name, column):
    if not (text.isdecimal() and text.isascii() and len(text) < 20 and int(text) <= most):
        raise invalid(name, f"a whole number from 0 to {most} as {column}", text)
    return int(text)


def read_csv(files, experts):
    """Adds up the files of all ranks: a line per load, columns in any order. Absent loads are 0."""
    totals = {}
    for name in files:
        seen = set()
        with open(name, newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file)
            names = [CSV_NAMES.get(field.strip(), field.strip()) for field in next(rows, [])]
            if sorted(names) != ["expert", "layer", "load"]:
                raise invalid(name, "the columns layer_id, expert_id and count, each once",
                              ", ".join(names) or "an empty file")
            for row in filter(None, rows):
                where = f"{name}: line {rows.line_num}"
                if len(row) != 3:
                    raise invalid(where, "3 fields", len(row))
                fields = {column: text.strip() for column, text in zip(names, row)}
                layer = csv_number(fields["layer"], 1 << 20, where, "layer_id")
                expert = csv_number(fields["expert"], MOST_EXPERTS - 1, where, "expert_id")
                if experts is not None and expert >= experts:
                    raise invalid(where, f"an expert_id below --experts {experts}", expert)
                if (layer, expert) in seen:
                    raise invalid(where, "one line for each expert of a layer",
                                  f"layer {layer}, expert {expert} again")
                seen.add((layer, expert))
                load = csv_number(fields["load"], (1 << 47) - 1, where, "count")
                totals[layer, expert] = totals.get((layer, expert), 0) + load
    if not totals:
        raise invalid(files[0], "lines with loads", "none")
    layers = 1 + max(layer for layer, _ in totals)
    experts = experts or 1 + max(expert for _, expert in totals)
    # A short file must not demand any amount of memory.
    if layers * experts > 1024 * 1024 * len(totals):
        raise invalid(files[0], "a line for each million loads", f"{len(totals)} for [{layers}, {experts}]")
    loads = numpy.zeros((1, layers, experts), numpy.int64)
    for (layer, expert), load in totals.items():
        loads[0, layer, expert] = load
    return loads


# RTP-LLM --------------------------------------------------------------------------------------


def parse_json(name, text, expected):
    """Returns an object of JSON; every defect is an InvalidRecording."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise invalid(name, expected, str(error) or type(error).__name__) from None
    if not isinstance(value, dict):
        raise invalid(name, expected, type(value).__name__)
    return value


def matrix_of(name, rows):
    try:
        return whole_counts(numpy.array(rows), name, 2)
    except (ValueError, OverflowError) as error:
        raise invalid(name, "rows of whole numbers of equal length", error) from None


def read_rtp_llm(files):
    """Adds up the ranks' files of each interval of steps, which follow one another by their last step."""
    expected = "JSON with ep_rank, ep_size, total_step and log_stats, as RTP-LLM writes it"
    steps = {}
    for name in files:
        recording = parse_json(name, pathlib.Path(name).read_text(), expected)
        rank, size, step = (recording.get(key) for key in ("ep_rank", "ep_size", "total_step"))
        if not all(type(one) is int for one in (rank, size, step)) or "log_stats" not in recording:
            raise invalid(name, expected, ", ".join(sorted(recording)) or "no key")
        if not 0 <= rank < size:
            raise invalid(f"{name}: ep_rank", f"a rank below ep_size {size}", rank)
        if rank in steps.setdefault(step, {}):
            raise invalid(name, "each step of a rank once", f"step {step} of rank {rank} again")
        steps[step][rank] = size, matrix_of(f"{name}: log_stats", recording["log_stats"])
    ranks = {size for parts in steps.values() for size, _ in parts.values()}
    if len(ranks) > 1:
        raise invalid(files[0], "recordings of one number of ranks", sorted(ranks))
    whole = [step for step in sorted(steps) if len(steps[step]) in ranks]
    if not whole:
        raise invalid(files[0], f"a step of all {ranks.pop()} ranks", f"{len(steps)} of some ranks")
    if len(whole) < len(steps):
        print(f"left out {len(steps) - len(whole)} of {len(steps)} steps, which not all ranks wrote")
    results = []
    for step in whole:
        parts = [(f"step {step} of rank {rank}", part[numpy.newaxis])
                 for rank, (_, part) in sorted(steps[step].items())]
        results.append((f"step {step}", joined(parts).sum(axis=0, keepdims=True)))
    return joined(results)


# TensorRT-LLM ---------------------------------------------------------------------------------


def safetensors(file):
    """Yields names and arrays of a file: the size of a JSON header, the header, the elements."""
    data = file.read_bytes()
    expected = "safetensors of int32 or int64"
    begin = 8 + int.from_bytes(data[:8], "little")
    if begin > len(data):
        raise invalid(file, expected, f"a header of {begin - 8} bytes in a file of {len(data)}")
    header = parse_json(file, data[8:begin], expected)
    header.pop("__metadata__", None)
    for key, tensor in header.items():
        dtype = {"I64": "<i8", "I32": "<i4"}.get(str(tensor.get("dtype"))) if isinstance(tensor, dict) else None
        if dtype is None:
            raise invalid(f"{file}: {key}", expected, tensor)
        offsets, shape = tensor.get("data_offsets"), tensor.get("shape")
        for numbers in (offsets, shape):
            if not isinstance(numbers, list) or not all(type(one) is int and one >= 0 for one in numbers):
                raise invalid(f"{file}: {key}", "data_offsets and a shape of whole numbers", numbers)
        size = numpy.dtype(dtype).itemsize
        for extent in shape:
            size = min(size * extent, len(data) + 1)  # a huge shape must not overflow
        if len(offsets) != 2 or offsets[1] - offsets[0] != size or offsets[1] > len(data) - begin:
            raise invalid(f"{file}: {key}", f"data_offsets of {shape} within {len(data) - begin} bytes", offsets)
        yield key, numpy.frombuffer(data[begin + offsets[0]:begin + offsets[1]], dtype).reshape(shape)


def read_tensorrt_llm(folder):
    """Returns the loads, and the layers of the model that their rows are."""
    meta = folder / "meta_info.json"
    try:
        text = meta.read_text()
    except (OSError, ValueError) as error:
        raise invalid(meta, "JSON with num_experts", error) from None
    experts = parse_json(meta, text, "JSON with num_experts").get("num_experts")
    if type(experts) is not int or not 1 <= experts <= MOST_EXPERTS:
        raise invalid(meta, f"JSON with num_experts from 1 to {MOST_EXPERTS}", experts)
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
    if not counts:
        raise invalid(folder, "counts", "none")
    return table_of(counts, folder)


# Megatron-LM's trace v1 -----------------------------------------------------------------------


MANIFEST = "manifest.json"


def manifest_number(manifest, name, key, least, most):
    number = manifest.get(key)
    if type(number) is not int or not least <= number <= most:
        raise invalid(f"{name}: {key}", f"a whole number from {least} to {most}", number)
    return number


def trace_ids(folder, manifest, name):
    """Returns the ids [tokens, k] of a trace, whose file and contents are as the manifest says."""
    tensors = manifest.get("tensors")
    entry = tensors.get("expert_ids") if isinstance(tensors, dict) else None
    fields = {"file": str, "sha256": str, "shape": list, "dtype": str}
    if not isinstance(entry, dict) or not all(type(entry.get(key)) is one for key, one in fields.items()):
        raise invalid(f"{name}: tensors: expert_ids", "file, sha256, shape and dtype", entry)
    file = folder / entry["file"]
    try:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
    except ValueError as error:  # a name that no file can have
        raise invalid(f"{name}: tensors: expert_ids: file", "the name of a file", error) from None
    if digest != entry["sha256"]:
        raise invalid(file, f"the sha256 of the manifest, {entry['sha256']}", digest)
    ids = load_torch(file)
    try:
        ids = ids.numpy()
    except (AttributeError, RuntimeError, TypeError) as error:
        raise invalid(file, "a tensor of integers", error) from None
    found = f"{ids.dtype} {shape_of(ids)}"
    if entry["dtype"] != "int64" or found != f"int64 {entry['shape']}" or ids.ndim != 2 or 0 in ids.shape:
        raise invalid(file, f"{entry['dtype']} {entry['shape']} of the manifest, as int64 [tokens, k]", found)
    return ids


def read_megatron(folders):
    """Adds up the microbatches of each step and layer; a folder is one of them.

    Returns the loads, and the layers of the model that their rows are.
    """
    counts, seen, of_experts = {}, {}, {}
    for folder in folders:
        name = folder / MANIFEST
        manifest = parse_json(name, name.read_text(), "JSON of a trace of Megatron-LM")
        if manifest.get("schema_version") != 1 or type(manifest["schema_version"]) is not int:
            raise invalid(f"{name}: schema_version", 1, manifest.get("schema_version"))
        experts = manifest_number(manifest, name, "num_experts", 1, MOST_EXPERTS)
        of_experts.setdefault(experts, folder)
        if len(of_experts) > 1:
            first = next(iter(of_experts))
            raise invalid(f"{name}: num_experts", f"{first}, as in {of_experts[first]}", experts)
        step, layer, batch = (manifest_number(manifest, name, key, 0, (1 << 63) - 1)
                              for key in ("step_id", "logical_layer_id", "microbatch_id"))
        if (step, layer, batch) in seen:
            raise invalid(folder, "each microbatch of a step and layer once", f"step {step}, layer {layer}, "
                          f"microbatch {batch} again, after {seen[step, layer, batch]}")
        seen[step, layer, batch] = folder
        ids = trace_ids(folder, manifest, name)
        for key, extent in zip(("logical_num_tokens", "topk"), ids.shape):
            if manifest_number(manifest, name, key, 1, (1 << 63) - 1) != extent:
                raise invalid(f"{name}: {key}", f"{extent}, as in expert_ids {shape_of(ids)}", manifest[key])
        for id in (ids.min(), ids.max()):
            if not 0 <= id < experts:
                raise invalid(f"{folder}: expert_ids", f"ids from 0 to {experts - 1}", id)
        ordered = numpy.sort(ids, axis=1)
        repeats = numpy.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
        if repeats.size:
            raise invalid(f"{folder}: expert_ids", "different experts of a token",
                          f"one twice in row {repeats[0]}")
        cell = step, layer
        counts[cell] = counts.get(cell, 0) + numpy.bincount(ids.ravel(), minlength=experts)
    return table_of(counts, "INPUT")


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
    digits = text.isdecimal() and text.isascii() and len(text) < 19
    if not digits or int(text) < least:
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text}")
    return int(text)


def expert_count(text):
    if number(text, 1, "a positive number") > MOST_EXPERTS:
        raise argparse.ArgumentTypeError(f"expected at most {MOST_EXPERTS}, got {text}")
    return int(text)


def options(arguments):
    parser = argparse.ArgumentParser(
        prog="read_recordings", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+", metavar="INPUT",
                        help="files of one kind, one folder, or folders of trace v1")
    parser.add_argument("--output", required=True, metavar="LOADS.npy")
    parser.add_argument("--oldest", type=row_or_unknown, metavar="ROW|unknown",
                        help="SGLang, mode stat: the row of the oldest step; needed if the program "
                             "cannot find it")
    parser.add_argument("--experts", type=expert_count, metavar="E",
                        help="number of experts of a layer: needed for top-k ids; for .csv files one more than "
                             "the largest id without it")
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
    readers = ("folder", ".pt", ".npy", ".csv", ".json")
    traces = [kind == "folder" and (path / MANIFEST).exists() for path in inputs]
    if kinds or kind not in readers or (kind == "folder" and len(inputs) > 1 and not all(traces)):
        raise invalid("INPUT", "files .pt or .csv of SGLang, files .json of RTP-LLM, files .npy of top-k ids, "
                      "folders of Megatron-LM with manifest.json, or one folder of TensorRT-LLM",
                      ", ".join(map(str, inputs)))
    for option, value, its_kinds in (("--oldest", oldest, (".pt",)), ("--experts", experts, (".npy", ".csv")),
                                     ("--tokens-per-step", tokens_per_step, (".npy",)),
                                     ("--axes", axes, (".npy",))):
        if value is not None and kind not in its_kinds:
            raise invalid(option, f"{' or '.join(its_kinds)} files", inputs[0])
    if all(traces):
        return read_megatron(inputs)
    if kind == "folder":
        return read_tensorrt_llm(inputs[0])
    if kind == ".pt":
        return read_sglang(inputs, oldest), None
    if kind == ".csv":
        return read_csv(inputs, experts), None
    if kind == ".json":
        return read_rtp_llm(inputs), None
    return read_ids(inputs, experts, tokens_per_step, axes), None


def save(loads, output):
    """Writes the file whole or not at all, behind links; into what is no ordinary file, in place."""
    output = os.path.realpath(output)
    if os.path.exists(output) and not stat.S_ISREG(os.stat(output).st_mode):
        content = io.BytesIO()
        numpy.save(content, loads)
        with open(output, "wb") as file:
            file.write(content.getbuffer())
        return
    with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(output))) as folder:
        part = os.path.join(folder, "loads.npy")
        numpy.save(part, loads)
        os.replace(part, output)


def main(arguments):
    chosen = options(arguments)
    try:
        loads, layer_ids = read(chosen.inputs, chosen.oldest, chosen.experts,
                                chosen.tokens_per_step, chosen.axes)
        if not loads.any():
            raise invalid(chosen.inputs[0], "some load", "only counts of 0")
        save(loads, chosen.output)
    except (InvalidRecording, OSError, UnicodeDecodeError, csv.Error, MemoryError, OverflowError) as error:
        text = str(error) or type(error).__name__
        if isinstance(error, OSError) and error.filename is not None:
            text = f"{error.filename}: expected it to be read or written, got {error.strerror}"
        # One line, whatever a name or a value holds.
        print("read_recordings: " + text.replace("\n", "\\n"), file=sys.stderr)
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
