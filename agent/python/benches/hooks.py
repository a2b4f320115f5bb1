"""What single parts of a watch add to a training step: V2's hooks before a module's call, the look for new parameters,
the wrapping of `backward`.

    python hooks.py [--pairs 1000] [--json FILE]

One small GPT trains in one process under one watch. Its steps are made in pairs, with the part and without it, in
turns the one first and the other; whatever else the machine does meets both alike. Shown are the median of the pairs'
differences, their quartiles, and the median's share of a step without the part. A step is short here (a few
milliseconds), so that microseconds show.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from gpts import SMALL, build
from torch.nn import functional

import trainmon
from trainmon.msprobe.trainer_v2 import TrainerMonitorV2

Toggle = Callable[[bool], None]
WARM = 20


class Training:
    """A GPT that steps when told to."""

    def __init__(self) -> None:
        self.net = build(SMALL).train()
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-4)
        generator = torch.Generator().manual_seed(2)
        self.tokens = torch.randint(0, SMALL.vocabulary, (SMALL.batch, SMALL.length + 1), generator=generator)

    def step(self) -> float:
        """Makes a step; gives its seconds."""
        started = time.perf_counter()
        self.optimizer.zero_grad()
        out = self.net(self.tokens[:, :-1]).flatten(0, 1)
        functional.cross_entropy(out, self.tokens[:, 1:].flatten()).backward()
        self.optimizer.step()
        return time.perf_counter() - started


@contextmanager
def new_parameters(training: Training, output: str) -> Any:
    """The look for them, before each step's first backward pass, before the optimizer's step and after it."""
    config = {"ops": ["norm"], "wg_distribution": True, "format": "csv", "queue_steps": 4096}
    with trainmon.watch(training.net, training.optimizer, config=config, output_dir=output) as watch:
        looking = watch._new_parameters
        assert looking is not None

        def toggle(is_on: bool) -> None:
            for name in ("take_up", "before_backward"):
                if is_on:
                    vars(looking).pop(name, None)
                else:
                    vars(looking)[name] = lambda: None

        yield toggle


@contextmanager
def backward(training: Training, output: str) -> Any:
    """The wrapping of `torch.autograd.backward`: what it calls before and after included."""
    original = torch.autograd.backward
    config = {"ops": ["norm"], "wg_distribution": True, "format": "csv", "queue_steps": 4096}
    with trainmon.watch(training.net, training.optimizer, config=config, output_dir=output):
        ours = torch.autograd.backward
        assert ours is not original

        def toggle(is_on: bool) -> None:
            torch.autograd.backward = ours if is_on else original

        yield toggle
        toggle(True)


@contextmanager
def pre_hooks(training: Training, output: str) -> Any:
    """V2's hooks before every module's call. Without them the same inputs are measured after the call, as V1 does."""
    file = Path(output) / "config.json"
    monitors = {"module": {"enabled": True, "ops": ["norm"]}}
    file.write_text(json.dumps({"format": "csv", "output_dir": output, "queue_steps": 4096, "monitors": monitors}))
    monitor = TrainerMonitorV2(file)
    monitor.start(model=training.net, optimizer=training.optimizer)
    watch = monitor._watch
    assert watch is not None
    rooms = watch.activations
    modules = list(training.net.modules())
    hooks = ("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_forward_hooks", "_forward_hooks_with_kwargs")
    kept: dict[bool, Any] = {}

    def keep() -> Any:
        return rooms._sites, [{name: dict(vars(one)[name]) for name in hooks} for one in modules]

    kept[True] = keep()
    rooms.detach()
    settings, rooms._sites = rooms._settings, []
    switches = {name: getattr(settings, name) for name in dir(settings) if not name.startswith("_")}
    rooms._settings = SimpleNamespace(**{**switches, "is_v2": False})
    rooms.attach([training.net])
    rooms._settings = settings
    kept[False] = keep()
    assert sum(len(one["_forward_pre_hooks"]) for one in kept[True][1]) > len(modules) / 2

    def toggle(is_on: bool) -> None:
        rooms._sites, of_modules = kept[is_on]
        for module, tables in zip(modules, of_modules, strict=True):
            for name, table in tables.items():
                own = vars(module)[name]
                own.clear()
                own.update(table)

    yield toggle
    monitor.stop()


PARTS: dict[str, Callable[[Training, str], AbstractContextManager[Toggle]]] = {
    "V2's hooks before each module": pre_hooks,
    "the look for new parameters": new_parameters,
    "the wrapping of backward": backward,
}


def measure(part: str, pairs: int) -> dict[str, Any]:
    """Seconds with and without the part."""
    training = Training()
    added, alone = [], []
    with tempfile.TemporaryDirectory() as output, PARTS[part](training, output) as toggle:
        for number in range(-WARM, pairs):
            taken = {}
            for is_on in (True, False) if number % 2 else (False, True):
                toggle(is_on)
                taken[is_on] = training.step()
            if number >= 0:
                added.append(1e6 * (taken[True] - taken[False]))
                alone.append(1e6 * taken[False])
        toggle(True)
    low, middle, high = statistics.quantiles(added, n=4)
    step = statistics.median(alone)
    share = f"{100 * middle / step:+.2f} % of {step / 1e3:.2f} ms"
    print(f"{part}: {middle:+.1f} us a step [{low:.1f} .. {high:.1f}], {share}; {pairs} pairs", flush=True)
    return {"part": part, "added_us": [low, middle, high], "step_us": step, "pairs": pairs}


def main() -> None:
    parser = argparse.ArgumentParser(description="What single parts of a watch add to a training step.")
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    found = [measure(part, arguments.pairs) for part in PARTS]
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
