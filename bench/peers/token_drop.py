# SPDX-License-Identifier: Apache-2.0
"""Token Drop and Expanded Drop in PyTorch, for comparison, by the paper's algorithms 1 and 2 (He et
al. 2025): softmax, each token's k best experts, each expert's C best tokens, and the pairs that are
in both. Our own code, written from the description.

    token_drop.py --tokens 16384 --experts 256 --top-k 8 --gamma 1.0 --device cuda --repeat 200
    token_drop.py --check FOLDER...        the masks of golden cases; exit code 1 where one differs

On a GPU runs are queued one after the other, so that Python's time overlaps with the device's if
possible: this is the best case of eager PyTorch. The output is one JSON object.
"""

import argparse
import json
import pathlib
import platform
import sys
import time

import torch


def token_drop(logits, k, gamma, local_experts=None):
    """Returns scores and a 0/1 map of kept pairs, both [tokens, experts]. With local_experts, ids
    that are candidates of every token, it is Expanded Drop.

    The capacity is rounded down. It is at most the number of tokens (algorithm 1 would fail above
    that), and 0 keeps nothing.
    """
    tokens, experts = logits.shape
    scores = logits.softmax(dim=1)
    candidates = torch.zeros_like(scores).scatter_(1, scores.topk(k, dim=1).indices, 1)
    if local_experts is not None:
        candidates[:, local_experts] = 1
    candidate_scores = scores * candidates
    capacity = min(int(gamma * (tokens * k) / experts), tokens)
    best = candidate_scores.topk(capacity, dim=0).indices
    # The best of a column with fewer candidates than the capacity include others, of score 0.
    kept = candidates * torch.zeros_like(scores).scatter_(0, best, 1)
    return candidate_scores * kept, kept


def measure(run, repeat, on_gpu):
    """Returns the microseconds of `repeat` runs in ascending order."""
    for _ in range(20):
        run()
    if on_gpu:
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(2 * repeat)]
        torch.cuda.synchronize()
        for begin, end in zip(marks[::2], marks[1::2]):
            begin.record()
            run()
            end.record()
        torch.cuda.synchronize()
        return sorted(1e3 * a.elapsed_time(b) for a, b in zip(marks[::2], marks[1::2]))
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        run()
        times.append(1e6 * (time.perf_counter() - begin))
    return sorted(times)


def benchmark(options):
    device = torch.device(options.device)
    on_gpu = device.type == "cuda"
    generator = torch.Generator().manual_seed(options.seed)
    logits = torch.randn(options.tokens, options.experts, generator=generator)
    logits += 0.5 * torch.randn(options.experts, generator=generator)  # some experts are popular
    logits = logits.to(device)
    local = torch.arange(options.expanded, device=device) if options.expanded else None
    _, kept = token_drop(logits, options.top_k, options.gamma, local)

    ways = {"eager": token_drop}
    if options.compile and hasattr(torch, "compile"):
        ways["compiled"] = torch.compile(token_drop)
    microseconds = {}
    for name, way in ways.items():
        times = measure(
            lambda: way(logits, options.top_k, options.gamma, local), options.repeat, on_gpu
        )
        microseconds[name] = {
            what: round(times[int(share * (len(times) - 1))], 2)
            for what, share in (("median", 0.5), ("p10", 0.1), ("p90", 0.9))
        }
    return {
        "device": torch.cuda.get_device_name(device) if on_gpu else platform.processor() or "cpu",
        "torch": torch.__version__,
        "threads": None if on_gpu else torch.get_num_threads(),
        "algorithm": "expanded_drop" if options.expanded else "token_drop",
        "tokens": options.tokens,
        "experts": options.experts,
        "top_k": options.top_k,
        "gamma": options.gamma,
        "local_experts": options.expanded,
        "kept": int(kept.sum()),
        "repeat": options.repeat,
        "microseconds": microseconds,
    }


def check(folder, device):
    """Returns the number of masks of a golden case, and a line for each that differs."""
    import numpy

    def load(name):
        return numpy.load(folder / f"{name}.npy")

    logits = torch.from_numpy(load("logits")).to(device)
    k = load("topk_ids").shape[1]
    local_ids = load("local_ids")
    rules = ("score", "order", "reverse", "device")
    columns = [f"td_{rule}" for rule in rules]
    columns += [f"ed_{rule}_h{home}" for rule in rules for home in range(len(local_ids))]
    counts, offsets, stored = load("kept_count"), load("kept_offsets"), load("kept_stored")
    masks = 0
    wrong = []
    for c, column in enumerate(columns):
        system, _, home = column.partition("_score")
        if column != f"{system}_score{home}":
            continue  # kept in another order, or by rank
        local = None
        if system == "ed":
            local = torch.from_numpy(local_ids[int(home[2:])]).long().to(device)
        for g, gamma in enumerate(load("gammas")):
            _, kept = token_drop(logits, k, float(gamma), local)
            pairs = kept.flatten().nonzero().flatten().cpu().numpy()
            same = len(pairs) == counts[g, c]
            if stored[g, c]:
                expected = load(f"kept_{column}")[offsets[c, g] : offsets[c, g + 1]]
                same = numpy.array_equal(pairs, expected)
            masks += 1
            if not same:
                wrong.append(f"{column}, gamma {gamma}: other pairs kept than expected")
    return masks, wrong


def check_all(folders, device):
    failed = False
    for folder in map(pathlib.Path, folders):
        masks, wrong = check(folder, torch.device(device))
        failed = failed or masks == 0 or bool(wrong)
        print(f"{folder.name}: {masks - len(wrong)} of {masks} masks agree", *wrong, sep="\n  ")
    return int(failed)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--experts", type=int, default=256)
    parser.add_argument("--top-k", type=int, default=8)
    parser.add_argument("--gamma", type=float, default=1.0)
    parser.add_argument("--expanded", type=int, default=0, metavar="M", help="local experts")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeat", type=int, default=200)
    parser.add_argument("--compile", action="store_true", help="also by torch.compile, if there")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", nargs="+", metavar="FOLDER")
    options = parser.parse_args()
    if options.check:
        return check_all(options.check, options.device)
    print(json.dumps(benchmark(options), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
