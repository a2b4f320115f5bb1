"""What a monitor adds to a training step: none, trainmon and the real msprobe, the same model, step by step in turn.

    python overhead.py [--rounds 15] [--starts 3] [--batch 4] [--only wg,xy] [--json FILE]

Each contender trains in a process of its own (msprobe's hooks cannot be taken off again). The processes step one at a
time in rotating order, so that whatever else the machine does meets all of them alike. The added time of a round is
that of the contender's step less the unmonitored step of the same round; medians and the 10th and 90th percentile are
of those. Where a process happens to get its memory alone makes its steps some per cent faster or slower for good: all
are started anew several times, and the rounds of all starts count. Reading gradients, moments and parameters takes the
same time at any batch size, and a step's noise grows with its length: `--batch 1` shows small differences best.

"Read-only" is one pass over every tensor the configuration looks at, each read once and nothing computed: the floor.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

CONTENDERS = ("none", "trainmon", "msprobe")

OPS = ["min", "max", "mean", "norm"]
CONFIGS: dict[str, dict[str, Any]] = {
    "wg": {"wg_distribution": True},
    "wg+mv+param": {"wg_distribution": True, "mv_distribution": True, "param_distribution": True},
    "xy": {"xy_distribution": True, "all_xy": True},
}


@dataclass(frozen=True)
class Size:
    """A GPT."""

    vocabulary: int
    width: int
    heads: int
    layers: int
    length: int
    batch: int


#: 33.9 M parameters.
LARGE = Size(vocabulary=8192, width=512, heads=8, layers=8, length=128, batch=4)
#: For a quick look, and for the test that the benchmark runs.
SMALL = Size(vocabulary=256, width=64, heads=4, layers=2, length=32, batch=2)


def build(size: Size) -> Any:
    """The model: pre-norm, untied head, written with plain modules."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
            self.qkv, self.out = nn.Linear(size.width, 3 * size.width), nn.Linear(size.width, size.width)
            self.fc1, self.fc2 = nn.Linear(size.width, 4 * size.width), nn.Linear(4 * size.width, size.width)
            self.act = nn.GELU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            b, t, d = x.shape
            q, k, v = (one.view(b, t, size.heads, -1).transpose(1, 2) for one in self.qkv(self.ln1(x)).chunk(3, -1))
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
            mixed: torch.Tensor = x + self.fc2(self.act(self.fc1(self.ln2(x))))
            return mixed

    class Gpt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(size.vocabulary, size.width)
            self.positions = nn.Embedding(size.length, size.width)
            self.layers = nn.ModuleList(Block() for _ in range(size.layers))
            self.ln = nn.LayerNorm(size.width)
            self.head = nn.Linear(size.width, size.vocabulary, bias=False)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x = self.tokens(tokens) + self.positions(torch.arange(size.length))
            for layer in self.layers:
                x = layer(x)
            logits: torch.Tensor = self.head(self.ln(x))
            return logits

    torch.manual_seed(1)
    return Gpt()


def train(contender: str, config: dict[str, Any], size: Size, output: str, pipe: Connection) -> None:
    """One contender: makes a step whenever it is told to, and says how long it took."""
    os.environ["MONITOR_OUTPUT_DIR"] = output
    # Where Megatron can be imported msprobe takes every model for Megatron's and skips gradients: not a fair race.
    sys.modules["megatron"] = None  # type: ignore[assignment]
    import torch
    from torch.nn import functional

    net = build(size).train()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    file = Path(output) / "config.json"
    file.write_text(json.dumps({"targets": {}, "format": "csv", "ops": OPS, **config}))
    monitor: Any = None
    if contender != "none":
        if contender == "trainmon":
            from trainmon import TrainerMon
        else:
            from msprobe.pytorch import TrainerMon
        monitor = TrainerMon(str(file), params_have_main_grad=False)
        monitor.set_monitor(net, grad_acc_steps=1, optimizer=optimizer)
    generator = torch.Generator().manual_seed(2)
    pipe.send(sum(parameter.numel() for parameter in net.parameters()))
    while pipe.recv() == "step":
        tokens = torch.randint(0, size.vocabulary, (size.batch, size.length + 1), generator=generator)
        cpu, started = time.process_time(), time.perf_counter()
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        pipe.send((time.perf_counter() - started, time.process_time() - cpu, float(loss.detach())))
    pipe.send(floor(net, optimizer, config, size) if contender == "trainmon" else 0.0)
    if contender == "trainmon":
        monitor.close()
    pipe.close()
    os._exit(0)


def floor(net: Any, optimizer: Any, config: dict[str, Any], size: Size) -> float:
    """Seconds to read once what the config looks at."""
    import torch

    from trainmon._trainmon import read_only_pass

    tensors = looked_at(net, optimizer, config, size)
    times = []
    # Something larger than the caches in between: a training's tensors are cold as well.
    flush = torch.zeros(64 << 20, dtype=torch.uint8)
    for _ in range(7):
        flush.add_(1)
        started = time.perf_counter()
        for tensor in tensors:
            read_only_pass(tensor)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def looked_at(net: Any, optimizer: Any, config: dict[str, Any], size: Size) -> list[Any]:
    """Gradients once (nothing aggregates here), moments, parameters before and after, inputs and outputs of every
    module and, for each that has one, its gradient."""
    import torch

    tensors = []
    for parameter in net.parameters():
        if config.get("wg_distribution"):
            tensors.append(parameter.grad)
        if config.get("mv_distribution"):
            tensors += [optimizer.state[parameter]["exp_avg"], optimizer.state[parameter]["exp_avg_sq"]]
        if config.get("param_distribution"):
            tensors += [parameter.detach(), parameter.detach()]
    if not config.get("xy_distribution"):
        return tensors

    def keep(_module: Any, args: Any, out: Any) -> None:
        for one in (*args, out):
            tensors.extend([one.detach()] * (2 if one.requires_grad else 1))

    for module in net.modules():
        module.register_forward_hook(keep)
    net(torch.zeros(size.batch, size.length, dtype=torch.long))
    return tensors


def race(name: str, size: Size, rounds: int, warm: int) -> dict[str, Any]:
    """All contenders with one config."""
    context = multiprocessing.get_context("spawn")
    pipes: dict[str, Any] = {}
    workers = []
    with tempfile.TemporaryDirectory() as base:
        for contender in CONTENDERS:
            output = str(Path(base) / contender)
            Path(output).mkdir()
            ours, theirs = context.Pipe()
            worker = context.Process(target=train, args=(contender, CONFIGS[name], size, output, theirs))
            worker.start()
            pipes[contender] = ours
            workers.append(worker)
        parameters = {contender: pipe.recv() for contender, pipe in pipes.items()}
        taken: dict[str, list[tuple[float, float]]] = {contender: [] for contender in CONTENDERS}
        losses: dict[str, list[float]] = {contender: [] for contender in CONTENDERS}
        for number in range(warm + rounds):
            for place in range(len(CONTENDERS)):
                contender = CONTENDERS[(number + place) % len(CONTENDERS)]
                pipes[contender].send("step")
                wall, cpu, loss = pipes[contender].recv()
                losses[contender].append(loss)
                if number >= warm:
                    taken[contender].append((wall, cpu))
            if sys.stderr.isatty():
                print(f"\r{name}: round {number + 1} of {warm + rounds}", end="", file=sys.stderr)
        floors = {}
        for contender, pipe in pipes.items():
            pipe.send("end")
            floors[contender] = pipe.recv()
        for worker in workers:
            worker.join()
    return {
        "config": name,
        "parameters": parameters["none"],
        "taken": taken,
        "floor": floors["trainmon"],
        "same_losses": {contender: losses[contender] == losses["none"] for contender in CONTENDERS},
    }


def races(name: str, size: Size, arguments: argparse.Namespace) -> dict[str, Any]:
    """The race with as many sets of fresh processes as asked for, as one."""
    runs = [race(name, size, arguments.rounds, arguments.warm) for _ in range(arguments.starts)]
    first = runs[0]
    return {
        **first,
        "taken": {contender: [one for run in runs for one in run["taken"][contender]] for contender in CONTENDERS},
        "floor": statistics.median(run["floor"] for run in runs),
        "same_losses": {contender: all(run["same_losses"][contender] for run in runs) for contender in CONTENDERS},
    }


def summary(values: list[float]) -> tuple[float, float, float]:
    """Median, 10th and 90th percentile."""
    ordered = sorted(values)
    at = lambda share: ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]  # noqa: E731
    return statistics.median(ordered), at(0.1), at(0.9)


def show(result: dict[str, Any]) -> dict[str, Any]:
    """Prints one race; gives the figures for a script."""
    taken = result["taken"]
    figures: dict[str, Any] = {"config": result["config"], "floor_ms": 1e3 * result["floor"]}
    print(f"\n{result['config']}: {result['parameters'] / 1e6:.1f} M parameters, {len(taken['none'])} rounds")
    for clock, index in (("wall", 0), ("cpu", 1)):
        base = [times[index] for times in taken["none"]]
        print(f"  {clock}: step without a monitor {1e3 * statistics.median(base):.1f} ms")
        added = {}
        for contender in CONTENDERS[1:]:
            extra = [1e3 * (times[index] - one) for times, one in zip(taken[contender], base, strict=True)]
            middle, low, high = summary(extra)
            added[contender] = middle
            share = 100 * middle / (1e3 * statistics.median(base))
            print(f"    {contender:<9} adds {middle:8.2f} ms [{low:.2f} .. {high:.2f}], {share:+.1f} % of the step")
            figures[f"{clock}_{contender}_ms"] = [middle, low, high]
        figures[f"{clock}_ratio"] = added["trainmon"] / added["msprobe"]
        print(f"    ratio of added times: {added['trainmon'] / added['msprobe']:.3f}")
    print(f"  read-only pass over the same tensors: {1e3 * result['floor']:.2f} ms")
    for contender, same in result["same_losses"].items():
        if not same:
            print(f"  note: the losses with {contender} differ from those without")
    return figures


def main() -> None:
    """Runs the races asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rounds", type=int, default=15, help="steps of each contender that count, per start (default %(default)s)"
    )
    parser.add_argument("--warm", type=int, default=3, help="steps before those (default %(default)s)")
    parser.add_argument(
        "--starts", type=int, default=3, help="sets of fresh processes that do so (default %(default)s)"
    )
    parser.add_argument("--only", default=",".join(CONFIGS), help="configurations, comma-separated (default: all)")
    parser.add_argument(
        "--small", action="store_true", help="a tiny model: shows that the benchmark runs, measures nothing"
    )
    parser.add_argument("--batch", type=int, help=f"sequences in a step (default {LARGE.batch})")
    parser.add_argument("--json", help="write the figures here as well")
    arguments = parser.parse_args()
    size = SMALL if arguments.small else LARGE
    size = replace(size, batch=arguments.batch or size.batch)
    figures = [show(races(name, size, arguments)) for name in arguments.only.split(",")]
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
