"""What keeping steps costs, that an alert may have one run again: steps through `watch.step_fn` and not, in turn.

    python replay.py [--rounds 40] [--kept 10]

The model is a GPT of four blocks, width 512, batches of 4 x 128 tokens, on all threads. Beside the added time stands a
bare copy of the parameters, measured in the same run: keeping a step cannot take less.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time

import torch
from gpts import Size, build
from torch.nn import functional

import trainmon

GPT = Size(vocabulary=4096, width=512, heads=8, layers=4, length=128, batch=4)


def main() -> None:
    """Prints the medians and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--kept", type=int, default=10)
    arguments = parser.parse_args()
    model = build(GPT)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(GPT.vocabulary, (GPT.batch, GPT.length))

    def step(tokens: torch.Tensor) -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()

    with (
        tempfile.TemporaryDirectory() as place,
        trainmon.watch(model, optimizer, output_dir=place, capture={"replay": arguments.kept}, quiet=True) as watch,
    ):
        kept = watch.step_fn(step)
        for _ in range(arguments.kept + 1):
            # Memory that was never used takes longer.
            kept(tokens)
        times: dict[str, list[float]] = {"bare": [], "kept": [], "copy": []}
        copies = [torch.empty_like(one) for one in model.parameters()]
        for _ in range(arguments.rounds):
            for name, call in (("bare", step), ("kept", kept)):
                start = time.perf_counter()
                call(tokens)
                times[name].append(time.perf_counter() - start)
            start = time.perf_counter()
            with torch.no_grad():
                for copy, one in zip(copies, model.parameters(), strict=True):
                    copy.copy_(one)
            times["copy"].append(time.perf_counter() - start)
    bare, copied = (statistics.median(times[name]) for name in ("bare", "copy"))
    added = statistics.median(kept - bare for kept, bare in zip(times["kept"], times["bare"], strict=True))
    size = sum(one.nbytes for one in model.parameters()) / 2**20
    print(f"{size:.0f} MiB of parameters; a step {bare * 1e3:.1f} ms, a bare copy {copied * 1e3:.2f} ms")
    print(f"keeping a step adds {added * 1e3:.2f} ms: {added / bare:.1%} of the step, {added / copied:.2f} of the copy")


if __name__ == "__main__":
    main()
