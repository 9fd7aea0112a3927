# SPDX-License-Identifier: Apache-2.0
"""Fuzzes the readers of files that are no arrays: whatever the bytes, read_recordings writes loads or one
line that says what it expected. Arguments: the number of damaged files of each kind, and a seed."""

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import random
import sys
import tempfile

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import read_recordings  # noqa: E402
import recorder  # noqa: E402

TOKENS = [b"-1", b"0", b"1e400", b"9" * 30, b"NaN", b"Infinity", b"true", b"null", b"[]", b"{}", b'"', b",", b"\n",
          b"\xff", b"[" * 50, b"]", b":", b"1.5", b"18446744073709551616", b"I64", b"shape", b"\x00", b"\xef\xbb\xbf"]


def safetensors():
    header = {"__metadata__": {"format": "pt"},
              "7_3": {"dtype": "I64", "shape": [3], "data_offsets": [0, 24]},
              "8_3": {"dtype": "I32", "shape": [3], "data_offsets": [24, 36]}}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(range(36))


RTP = json.dumps({"total_step": 10, "ep_rank": 0, "ep_size": 1, "log_stats": [[1, 2, 3], [4, 5, 6]]}).encode()
CSV = b"layer_id,expert_id,count\n3,0,100\n3,1,700\n4,3,20\n"
META = json.dumps({"num_experts": 3, "num_experts_per_token": 2}).encode()


def damaged(content, rng):
    content = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(content) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            content[at:at + rng.randint(0, 8)] = rng.choice(TOKENS)
        elif kind == 1 and content:
            content[at % len(content)] = rng.randrange(256)
        elif kind == 2:
            del content[at:at + rng.randint(1, 20)]
        elif kind == 3:
            begin = rng.randrange(len(content) + 1)
            content[at:at] = content[begin:begin + rng.randint(1, 40)]
        else:
            content[at:at] = rng.choice(TOKENS)
    return bytes(content)


def outcome(arguments):
    """Runs the program; returns its exit code and what it printed on stderr."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        code = read_recordings.main([*arguments, "--output", "loads.npy"])
    return code, errors.getvalue()


def main(runs, seed):
    rng = random.Random(seed)
    read = refused = 0
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        os.mkdir("statistic")
        files = {"statistic/rank0.safetensors": safetensors(), "statistic/meta_info.json": META,
                 "eplb_stats_rank0_step10_1.json": RTP, "rank0.csv": CSV}
        for name, content in files.items():
            pathlib.Path(name).write_bytes(content)
        if importlib.util.find_spec("torch") is not None:
            recorder.trace(pathlib.Path("trace"), numpy.array([[0, 1], [2, 0]]), 3)
            files["trace/manifest.json"] = pathlib.Path("trace/manifest.json").read_bytes()
        for name, content in files.items():
            inputs = [os.path.dirname(name) or name]
            assert outcome(inputs) == (0, ""), name
            for _ in range(runs):
                bytes_of_case = damaged(content, rng)
                pathlib.Path(name).write_bytes(bytes_of_case)
                try:
                    code, errors = outcome(inputs)
                    if code == 0:
                        loads = numpy.load("loads.npy")
                        assert loads.ndim == 3 and loads.dtype == numpy.int64 and (loads >= 0).all()
                        read += 1
                    else:
                        assert code == 2 and errors.startswith("read_recordings: ") and errors.count("\n") == 1, errors
                        refused += 1
                except BaseException:
                    print(f"{name}: {bytes_of_case!r}")
                    raise
            pathlib.Path(name).write_bytes(content)
        os.chdir("/")
    assert read > runs // 20 and refused > runs, (read, refused)
    print(f"{read} files read, {refused} refused")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
