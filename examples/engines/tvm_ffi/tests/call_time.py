# SPDX-License-Identifier: Apache-2.0
"""call_time.py PROGRAM [CALLS]: compares the time of rebalance_experts from Python and from C++, which
PROGRAM (call_time.cpp) measures, for 58 layers of 256 experts on 64 ranks."""

import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import plimsoll_ffi

calls = int(sys.argv[2]) if len(sys.argv) > 2 else 300
weight = np.random.default_rng(1).pareto(1.2, (58, 256)).astype(np.float32) * 100
shape = (320, 1, 1, 64)
width = int(plimsoll_ffi.rebalance_experts(weight, *shape)[2].max())

python, cpp = [], []
with tempfile.NamedTemporaryFile() as file:
    file.write(weight.tobytes())
    file.flush()
    for _ in range(5):  # in turns, so that both meet the same machine
        for _ in range(calls // 5):
            start = time.perf_counter()
            plimsoll_ffi.rebalance_experts(weight, *shape)
            python.append((time.perf_counter() - start) * 1e6)
        arguments = [file.name, *weight.shape, *shape, width, calls // 5]
        output = subprocess.run([sys.argv[1], *map(str, arguments)], check=True, capture_output=True, text=True)
        cpp += map(float, output.stdout.split())
for name, statistic in (("median", statistics.median), ("shortest", min)):
    ours, theirs = statistic(python), statistic(cpp)
    print(f"{name}: Python {ours:.0f} us, C++ {theirs:.0f} us, ratio {ours / theirs:.3f}")
