# SPDX-License-Identifier: Apache-2.0
"""Records expert loads as SGLang's recorder does, for tests: same buffers, same keys, same files.

Written from what the recorder does, not from its source: a ring of the mode stat keeps its position
when a recording starts, and is saved whole in the order of its rows, after a sum over the ranks.

`trace` writes a folder of Megatron-LM's trace v1.
"""

import hashlib
import json

import numpy


class Ring:
    """A buffer of a fixed number of rows. Starting a recording clears it, but not its position."""

    def __init__(self, rows, shape):
        self.rows = numpy.zeros((rows, *shape), numpy.int32)
        self.position = 0

    def start(self):
        self.rows[...] = 0

    def append(self, counts):
        self.rows[self.position] = counts
        self.position = (self.position + 1) % len(self.rows)

    def all(self):
        return self.rows.copy()


class Unlimited:
    """A buffer that grows (--expert-distribution-recorder-buffer-size -1)."""

    def __init__(self):
        self.start()

    def start(self):
        self.rows = []

    def append(self, counts):
        self.rows.append(counts)

    def all(self):
        return numpy.array(self.rows)


def stat(buffers, slots, experts):
    """Returns what rank 0 saves: the buffers of all ranks, mapped to experts and added."""
    physical = sum(buffer.all() for buffer in buffers)
    logical = numpy.zeros((*physical.shape[:2], experts), numpy.int32)
    for layer, expert_of in enumerate(slots):
        for slot, expert in enumerate(expert_of):
            logical[:, layer, expert] += physical[:, layer, slot]
    return {"rank": 0, "logical_count": logical, "average_utilization_rate_over_window": None}


def passes(rank, slots, steps, first_pass, tokens=None):
    """Returns what a rank saves in the mode per_pass; with tokens, in the mode per_token."""
    records = []
    for number, counts in enumerate(steps, first_pass):
        record = {"forward_pass_id": number, "rank": rank, "gatherer_key": "primary",
                  "global_physical_count": counts}
        if tokens is not None:
            ids = tokens[number - first_pass]
            record |= {"input_ids": [1] * ids.shape[1], "positions": list(range(ids.shape[1])),
                       "extend_seq_lens": None, "forward_mode": 1, "topk_ids_of_layer": ids,
                       "misc_objects": []}
        records.append(record)
    return {"records": records, "last_physical_to_logical_map": slots}


def save(recording, file):
    """Saves arrays as tensors, as torch.save of the recorder does."""
    import torch

    def tensors(value):
        if isinstance(value, numpy.ndarray):
            return torch.from_numpy(numpy.ascontiguousarray(value))
        if isinstance(value, dict):
            return {key: tensors(item) for key, item in value.items()}
        return [tensors(item) for item in value] if isinstance(value, list) else value

    torch.save(tensors(recording), file)


def trace(folder, ids, experts, step=0, layer=0, microbatch=0):
    """Writes a trace of Megatron-LM: a manifest and the tensors that it names, with their checksums."""
    tokens, k = ids.shape
    tensors = {"token_ids": ids, "expert_ids": ids, "gates": numpy.full((tokens, k), 1 / k, numpy.float32),
               "source_rank": numpy.zeros(tokens, numpy.int32)}
    (folder / "tensors").mkdir(parents=True)
    entries = {}
    for name, tensor in tensors.items():
        file = f"tensors/{name}.pt"
        save(tensor, folder / file)
        entries[name] = {"file": file, "shape": list(tensor.shape), "dtype": str(tensor.dtype),
                         "sha256": hashlib.sha256((folder / file).read_bytes()).hexdigest()}
    manifest = {"schema_version": 1, "seed": 7, "workload_id": "W1_hot_expert_set", "workload_checksum": "0",
                "world_size": 1, "hidden_size": 8, "num_experts": experts, "topk": k, "logical_num_tokens": tokens,
                "step_id": step, "logical_layer_id": layer, "microbatch_id": microbatch, "tensors": entries}
    (folder / "manifest.json").write_text(json.dumps(manifest))
