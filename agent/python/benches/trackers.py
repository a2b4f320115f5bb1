"""What sending every step to Weights & Biases or MLflow adds to a training step, beside `wandb.watch`.

    python trackers.py [--rounds 30] [--starts 2] [--only none,wandb.watch] [--batch 4] [--small]

Needs wandb and mlflow-skinny beside torch. Weights & Biases is offline, MLflow's store a directory. Each contender
trains the same model in a process of its own; they step one at a time in rotating order. The script logs its loss to
Weights & Biases in every step where the contender's name has `wandb` in it, as one that uses it does: `wandb.log` is
that alone.
`trainmon` measures the weight gradients (norm, min, max, mean) into CSV files; `wandb.watch` makes histograms of them.
The ratio of a round is that of the contender's step to the unmonitored step of the same round. Processor time is that
of all threads of the training's process; what a tracker's own process does is not in it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from gpts import LARGE, SMALL, Size, build
from overhead import OPS, summary

CONTENDERS = (
    "none",
    "wandb.log",
    "trainmon",
    "trainmon+wandb",
    "trainmon+wandb layers",
    "trainmon+mlflow",
    "wandb.watch",
)
CLOCKS = ("wall", "cpu")


def config_of(contender: str) -> dict[str, Any]:
    """Of a contender with trainmon in it."""
    config: dict[str, Any] = {"format": "csv", "ops": OPS, "wg_distribution": True, "step_count_per_record": 1000}
    if "wandb" in contender:
        config["wandb"] = {"layers": True} if "layers" in contender else True
    if "mlflow" in contender:
        config["mlflow"] = True
    return config


def train(contender: str, size: Size, output: str, pipe: Connection) -> None:
    """One contender: makes a step whenever it is told to, and says how long it took."""
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_CONSOLE="off", MLFLOW_ALLOW_FILE_STORE="true")
    import torch
    from torch.nn import functional

    net = build(size).train()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    run: Any = None
    if "wandb" in contender:
        import wandb

        run = wandb.init(project="bench", dir=output)
    if "mlflow" in contender:
        import mlflow

        mlflow.set_tracking_uri(Path(output, "mlruns").as_uri())
        mlflow.start_run()
    watch: Any = None
    if "trainmon" in contender:
        import trainmon

        watch = trainmon.watch(net, optimizer, config=config_of(contender), output_dir=output)
    if contender == "wandb.watch":
        run.watch(net, log="gradients", log_freq=1)
    generator = torch.Generator().manual_seed(2)
    pipe.send("ready")
    while pipe.recv() == "step":
        tokens = torch.randint(0, size.vocabulary, (size.batch, size.length + 1), generator=generator)
        started = time.perf_counter(), time.process_time()
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        if watch is not None:
            watch.log(accuracy=0.5)
        optimizer.step()
        if run is not None:
            run.log({"loss": float(loss.detach())})
        pipe.send((time.perf_counter() - started[0], time.process_time() - started[1]))
    pipe.send(watch.close() if watch is not None else "")
    pipe.close()
    if run is not None:
        run.finish()
    os._exit(0)


def race(contenders: list[str], size: Size, rounds: int, warm: int) -> dict[str, list[tuple[float, float]]]:
    """All contenders, each in a fresh process: wall and processor seconds of their steps."""
    context = multiprocessing.get_context("spawn")
    taken: dict[str, list[tuple[float, float]]] = {contender: [] for contender in contenders}
    pipes: dict[str, Any] = {}
    workers = []
    with tempfile.TemporaryDirectory() as base:
        for number, contender in enumerate(contenders):
            output = Path(base, str(number))
            output.mkdir()
            ours, theirs = context.Pipe()
            workers.append(context.Process(target=train, args=(contender, size, str(output), theirs)))
            workers[-1].start()
            pipes[contender] = ours
        for pipe in pipes.values():
            pipe.recv()
        for number in range(warm + rounds):
            for place in range(len(contenders)):
                contender = contenders[(number + place) % len(contenders)]
                pipes[contender].send("step")
                seconds = pipes[contender].recv()
                if number >= warm:
                    taken[contender].append(seconds)
        for pipe in pipes.values():
            pipe.send("end")
            pipe.recv()
        for worker in workers:
            worker.join()
    return taken


def show(sets: list[dict[str, list[tuple[float, float]]]], clock: str) -> dict[str, Any]:
    """Prints a line for each contender by one clock; gives the figures for a script."""

    def times(contender: str) -> list[float]:
        return [1e3 * both[CLOCKS.index(clock)] for one in sets for both in one[contender]]

    base = times("none")
    middle, low, high = summary(base)
    print(f"{clock}: step alone {middle:.2f} ms [{low:.2f} .. {high:.2f}]")
    figures = {}
    for contender in [one for one in sets[0] if one != "none"]:
        pairs = list(zip(times(contender), base, strict=True))
        added, ratio = summary([one - alone for one, alone in pairs]), summary([one / alone for one, alone in pairs])
        figures[contender] = {"added_ms": added, "ratio": ratio}
        print(
            f"  {contender:<22} adds {added[0]:8.2f} ms [{added[1]:.2f} .. {added[2]:.2f}], "
            f"ratio {ratio[0]:.3f} [{ratio[1]:.3f} .. {ratio[2]:.3f}]"
        )
    return figures


def main() -> None:
    """Runs the race and prints a line for each contender."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="steps that count, per start (default %(default)s)")
    parser.add_argument("--warm", type=int, default=5, help="steps before those (default %(default)s)")
    parser.add_argument("--starts", type=int, default=2, help="sets of fresh processes (default %(default)s)")
    parser.add_argument("--only", default=",".join(CONTENDERS), help="contenders, comma-separated (default: all)")
    parser.add_argument("--small", action="store_true", help="a tiny model, whose step is short")
    parser.add_argument("--batch", type=int, help=f"sequences in a step (default {LARGE.batch})")
    parser.add_argument("--json", help="write the figures here as well")
    arguments = parser.parse_args()
    size, contenders = (SMALL if arguments.small else LARGE), arguments.only.split(",")
    size = replace(size, batch=arguments.batch or size.batch)
    if "none" not in contenders:
        parser.error("--only: `none` is what the others are compared with")
    loads = [os.getloadavg()[0]]
    sets = []
    for _ in range(arguments.starts):
        sets.append(race(contenders, size, arguments.rounds, arguments.warm))
        loads.append(os.getloadavg()[0])
    parameters = sum(one.numel() for one in build(size).parameters()) / 1e6
    rounds = arguments.starts * arguments.rounds
    print(f"{parameters:.1f} M parameters, {rounds} rounds, load {', '.join(f'{load:.1f}' for load in loads)}")
    figures = {clock: show(sets, clock) for clock in CLOCKS}
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
