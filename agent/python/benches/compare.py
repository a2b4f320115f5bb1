"""Comparing two dumps: `trainmon compare` and the real `msprobe compare`, each as a fresh process, in turn.

    python compare.py --trainmon target/release/trainmon [--rounds 3] [--only statistics] [--json FILE]

Two pairs of dumps are made in a temporary directory, seeded: one of statistics (20,020 nodes of a GPT's forward and
backward, their call stacks shared by layers as a loop over blocks makes them) and one of tensors (200 of 2.6 MB,
float32, written by torch). Target differs from golden by 0.1 to 0.7 %. Time is wall time from start to end of the
process, CPU time that of it and the children it waited for. Memory is told in two ways: the largest process of a
command (what `wait4` says: no less than the 18 MB of the process that measures), and, of one more run that is not
timed, the largest sum over all its processes of the proportional share (PSS, sampled each 50 ms), in which pages of
mapped files count.
"""

from __future__ import annotations

import argparse
import json
import mmap
import multiprocessing
import os
import random
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

Result = TypeVar("Result")

SEED = 5
SAMPLE_SECONDS = 0.05
#: A forward pass of one layer: operator, shape of its inputs, shape of its output.
FORWARD: list[tuple[str, list[list[int]], list[int]]] = [
    ("Functional.layer_norm", [[4, 64, 256], [256], [256]], [4, 64, 256]),
    ("Functional.linear", [[4, 64, 256], [768, 256], [768]], [4, 64, 768]),
    ("Tensor.__getitem__", [[4, 64, 768]], [4, 64, 256]),
    ("Tensor.__getitem__", [[4, 64, 768]], [4, 64, 256]),
    ("Tensor.__getitem__", [[4, 64, 768]], [4, 64, 256]),
    ("Torch.matmul", [[4, 8, 64, 32], [4, 8, 32, 64]], [4, 8, 64, 64]),
    ("Tensor.__mul__", [[4, 8, 64, 64]], [4, 8, 64, 64]),
    ("Tensor.masked_fill", [[4, 8, 64, 64], [64, 64]], [4, 8, 64, 64]),
    ("Torch.softmax", [[4, 8, 64, 64]], [4, 8, 64, 64]),
    ("Functional.dropout", [[4, 8, 64, 64]], [4, 8, 64, 64]),
    ("Torch.matmul", [[4, 8, 64, 64], [4, 8, 64, 32]], [4, 8, 64, 32]),
    ("Functional.linear", [[4, 64, 256], [256, 256], [256]], [4, 64, 256]),
    ("Functional.dropout", [[4, 64, 256]], [4, 64, 256]),
    ("Tensor.__add__", [[4, 64, 256], [4, 64, 256]], [4, 64, 256]),
    ("Functional.layer_norm", [[4, 64, 256], [256], [256]], [4, 64, 256]),
    ("Functional.linear", [[4, 64, 256], [1024, 256], [1024]], [4, 64, 1024]),
    ("Functional.gelu", [[4, 64, 1024]], [4, 64, 1024]),
    ("Functional.linear", [[4, 64, 1024], [256, 1024], [256]], [4, 64, 256]),
    ("Functional.dropout", [[4, 64, 256]], [4, 64, 256]),
    ("Tensor.__add__", [[4, 64, 256], [4, 64, 256]], [4, 64, 256]),
]
#: The modules around them: name within the block, class, the last of the operators that it encloses.
MODULES = [
    ("ln1", "LayerNorm", 0),
    ("attn.qkv", "Linear", 1),
    ("attn.drop", "Dropout", 9),
    ("attn.out", "Linear", 11),
    ("attn", "Attention", 11),
    ("drop1", "Dropout", 12),
    ("ln2", "LayerNorm", 14),
    ("up", "Linear", 15),
    ("act", "GELU", 16),
    ("down", "Linear", 17),
    ("drop2", "Dropout", 18),
    ("mlp", "Mlp", 18),
    ("residual", "Identity", 19),
    ("out", "Identity", 19),
    ("", "Block", 19),
]


@dataclass(frozen=True)
class Size:
    """How much there is to compare."""

    layers: int
    tensors: int
    elements: int


FULL = Size(layers=286, tensors=200, elements=655_360)
SMALL = Size(layers=4, tensors=6, elements=4096)


class Dump:
    """One side's dump of statistics, as msprobe writes it at level mix."""

    def __init__(self, *, noise: bool) -> None:
        self.values = random.Random(SEED)
        self.noise = random.Random(SEED + 1) if noise else None
        self.data: dict[str, Any] = {}
        self.construct: dict[str, Any] = {}
        self.stacks: dict[tuple[str, ...], list[str]] = {}
        self.calls: dict[str, int] = {}

    def tensor(self, shape: list[int]) -> dict[str, Any]:
        """A tensor's entry. Both sides draw the same values; target then moves each by 0.1 to 0.7 %."""
        spread = self.values.uniform(0.1, 4.0)
        numbers = [spread * self.values.uniform(0.9, 1.4), -spread, self.values.gauss(0.0, 0.1), spread * 9.7]
        if self.noise is not None:
            signs = [self.noise.choice((-1, 1)) for _ in numbers]
            numbers = [
                number * (1 + sign * self.noise.uniform(1e-3, 7e-3))
                for number, sign in zip(numbers, signs, strict=True)
            ]
        entry: dict[str, Any] = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": shape}
        return {**entry, **dict(zip(("Max", "Min", "Mean", "Norm"), numbers, strict=True)), "requires_grad": True}

    def call(self, name: str) -> str:
        """The next call's number."""
        number = self.calls.get(name, 0)
        self.calls[name] = number + 1
        return f"{name}.{number}"

    def forward(self, name: str, shapes: list[list[int]], output: list[int], enclosing: str | None, line: int) -> None:
        """A node of the forward pass. A module has its weights beside its inputs, an operator among them."""
        inputs, parameters = (shapes[:1], shapes[1:]) if name.startswith("Module.") else (shapes, [])
        entry: dict[str, Any] = {"input_args": [self.tensor(shape) for shape in inputs], "input_kwargs": {}}
        entry["output"] = [self.tensor(output)]
        if parameters:
            entry["parameters"] = {
                name: self.tensor(shape) for name, shape in zip(("weight", "bias"), parameters, strict=False)
            }
        self.data[name] = entry
        self.construct[name] = enclosing
        self.stacks.setdefault(stack(line), []).append(name)

    def backward(self, name: str, inputs: list[list[int]], output: list[int], enclosing: str | None) -> None:
        """A node of the backward pass. It has no stack."""
        self.data[name] = {"input": [self.tensor(output)], "output": [self.tensor(shape) for shape in inputs]}
        self.construct[name] = enclosing

    def layer(self, number: int) -> None:
        """35 nodes forward, 35 backward."""
        block = f"Module.layers.{number}"
        made: list[tuple[str, str, list[list[int]], list[int], str | None, str | None]] = []
        for index, (operator, inputs, output) in enumerate(FORWARD):
            around = [(name, kind) for name, kind, last in MODULES if last == index and kind != "Attention"]
            name, kind = around[0] if around else ("", "Block")
            path = ".".join(part for part in (block, name, kind) if part)
            call = self.call(operator)
            made.append(
                (f"{call}.forward", f"{call}.backward", inputs, output, f"{path}.forward.0", f"{path}.backward.0")
            )
            for name, kind, last in MODULES:
                if last == index:
                    path = ".".join(part for part in (block, name, kind) if part)
                    above = None if name == "" else f"{block}.Block."
                    outer = (f"{above}forward.0", f"{above}backward.0") if above else (None, None)
                    made.append(
                        (f"{path}.forward.0", f"{path}.backward.0", inputs if name else inputs[:1], output, *outer)
                    )
        for line, (forward, _, inputs, output, enclosing, _) in enumerate(made):
            self.forward(forward, inputs, output, enclosing, line)
        for _, backward, inputs, output, _, enclosing in reversed(made):
            self.backward(backward, inputs, output, enclosing)

    def write(self, place: Path) -> None:
        """dump.json, stack.json, construct.json."""
        place.mkdir(parents=True)
        head = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None}
        write(place / "dump.json", {**head, "data": self.data})
        write(place / "construct.json", self.construct)
        write(
            place / "stack.json",
            {str(n): [names, list(frames)] for n, (frames, names) in enumerate(self.stacks.items())},
        )


def stack(line: int) -> tuple[str, ...]:
    """The frames of a call from that line of the block."""
    torch = "File /venv/lib/python3.11/site-packages/torch/nn/modules/module.py, line"
    frames = [f"{torch} 1832, in inner, \n result = forward_call(*args, **kwargs)"]
    for depth in range(3):
        frames += [
            f"File /training/model.py, line {100 * depth + line}, in forward, \n hidden = self.layer{depth}(hidden)",
            f"{torch} 1884, in _call_impl, \n return inner()",
            f"{torch} 1778, in _wrapped_call_impl, \n return self._call_impl(*args, **kwargs)",
        ]
    return (*frames, "File /training/train.py, line 68, in <module>, \n loss = criterion(net(inputs), labels)")


def write(path: Path, content: Any) -> None:
    """JSON as msprobe indents it."""
    path.write_text(json.dumps(content, indent=1))


def make_statistics(place: Path, size: Size) -> int:
    """Both sides. Returns the number of nodes."""
    for side in ("golden", "target"):
        dump = Dump(noise=side == "target")
        for layer in range(size.layers):
            dump.layer(layer)
        dump.write(place / side / "step0/rank0")
    return len(dump.data)


def make_tensors(place: Path, size: Size) -> int:
    """Both sides, as task `tensor` writes them. Returns the bytes of one side's values."""
    import torch

    for side in ("golden", "target"):
        home = place / side / "step0/rank0"
        data: dict[str, Any] = {}
        (home / "dump_tensor_data").mkdir(parents=True)
        generator = torch.Generator().manual_seed(SEED)
        for number in range(size.tensors // 2):
            node = f"Functional.gelu.{number}.forward"
            entries = []
            for part in ("input", "output"):
                values = torch.randn(size.elements // 256, 256, generator=generator)
                if side == "target":
                    values *= 1.0 + 1e-3 * (1.0 + 6.0 * number / size.tensors)
                name = f"{node}.{part}.0.pt"
                torch.save(values, home / "dump_tensor_data" / name)
                entry = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": list(values.shape)}
                entry |= {"Max": values.max().item(), "Min": values.min().item(), "Mean": values.mean().item()}
                entries.append({**entry, "Norm": values.norm().item(), "requires_grad": True, "data_name": name})
            data[node] = {"input_args": [entries[0]], "input_kwargs": {}, "output": [entries[1]]}
        head = {"task": "tensor", "level": "L1", "framework": "pytorch"}
        write(home / "dump.json", {**head, "dump_data_dir": str(home / "dump_tensor_data"), "data": data})
        write(home / "construct.json", {})
        write(home / "stack.json", {"0": [list(data), list(stack(1))]})
    return size.tensors * size.elements * 4


@dataclass(frozen=True)
class Cost:
    """What one process cost."""

    wall: float
    cpu: float
    largest: float
    """MB of the largest process of the command."""


class FailedError(Exception):
    """A command did not end as it should."""

    def __init__(self, command: list[str], status: int, text: str) -> None:
        super().__init__(f"{shlex.join(command)}: exit code {status}, expected 0\n{text[-3000:]}")


def run(command: list[str], place: Path, *, sampled: bool = False) -> tuple[Cost, float]:
    """One process from start to end; sampled: also the largest sum over its processes, in MB."""
    log = place / "log"
    most = 0.0
    with log.open("wb") as output:
        start = time.perf_counter()
        process = subprocess.Popen(command, cwd=place, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        if sampled:
            while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                most = max(most, sum(map(share, family(process.pid))))
                time.sleep(SAMPLE_SECONDS)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise FailedError(command, process.returncode, log.read_text(errors="replace"))
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6), most


def family(root: int) -> Iterator[int]:
    """A process and all that it started."""
    yield root
    for task in Path(f"/proc/{root}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        for child in children:
            yield from family(int(child))


def share(process: int) -> float:
    """What a process has in memory, in MB, pages of several shared out among them."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("Pss:")), 0.0)


def apart(work: Callable[..., Result], *arguments: Any) -> Result:
    """In a process of its own: the system counts what the parent has as memory of a process that it starts."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def read(path: Path) -> int:
    """A pass over a file's bytes."""
    import numpy as np

    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        words = np.frombuffer(mapped, dtype=np.uint64, count=len(mapped) // 8)
        total = int(np.bitwise_xor.reduce(words))
        del words
    return total


def floors(place: Path, rounds: int) -> list[float]:
    """Seconds to read all tensors of both sides, by as many threads as there are cores, once they are cached."""
    files = sorted(place.glob("*/step0/rank0/dump_tensor_data/*.pt"))
    times = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in range(rounds + 1):
            start = time.perf_counter()
            list(pool.map(read, files))
            times.append(time.perf_counter() - start)
    return times[1:]


def race(commands: dict[str, list[str]], place: Path, rounds: int) -> dict[str, dict[str, Any]]:
    """All commands in rotating order, and once more each with its memory sampled."""
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    names = list(commands)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            costs[name].append(fresh(commands[name], place)[0])
            print(f"  round {turn + 1} {name}: {costs[name][-1].wall:.3f} s", file=sys.stderr, flush=True)
    return {
        name: {
            "runs": [asdict(cost) for cost in costs[name]],
            "together": fresh(commands[name], place, sampled=True)[1],
        }
        for name in commands
    }


def fresh(command: list[str], place: Path, *, sampled: bool = False) -> tuple[Cost, float]:
    """A run into an empty output directory."""
    shutil.rmtree(place / "out", ignore_errors=True)
    (place / "out").mkdir()
    return run(command, place, sampled=sampled)


def spread(values: list[float], digits: int) -> str:
    """Median and range."""
    return f"{statistics.median(values):.{digits}f} [{min(values):.{digits}f} .. {max(values):.{digits}f}]"


def report(title: str, found: dict[str, dict[str, Any]], golden: str = "msprobe") -> None:
    """The table of one race, with the ratios to msprobe."""
    heads = (
        "command",
        "wall s",
        "CPU s",
        "largest process MB",
        "all MB",
        f"{golden} / it: wall, CPU",
        f"it / {golden}: largest, all",
    )
    print(f"\n{title}\n\n| {' | '.join(heads)} |")
    print("|---|---|---|---|---|---|---|")

    def column(name: str, key: str) -> list[float]:
        return [cost[key] for cost in found[name]["runs"]]

    def middle(name: str, key: str) -> float:
        return statistics.median(column(name, key))

    for name, result in found.items():
        # A process may end between two samples: it had at least what its largest one had.
        together = {one: max(found[one]["together"], *column(one, "largest")) for one in found}
        faster, smaller = "", ""
        if golden in found and name != golden:
            ratios = {key: middle(golden, key) / middle(name, key) for key in ("wall", "cpu", "largest")}
            faster = f"{ratios['wall']:.1f}, {ratios['cpu']:.1f}"
            smaller = f"{1 / ratios['largest']:.3f}, {together[name] / together[golden]:.3f}"
        cells = (spread(column(name, "wall"), 3), spread(column(name, "cpu"), 3), spread(column(name, "largest"), 0))
        print(f"| {name} | {' | '.join(cells)} | {together[name]:.0f} | {faster} | {smaller} |")
        result["together"] = together[name]


def compare_commands(trainmon: Path, msprobe: Path) -> dict[str, list[str]]:
    """The contenders, on the pair in the directory they run in."""
    paths = ["-tp", "target/step0/rank0/dump.json", "-gp", "golden/step0/rank0/dump.json", "-o", "out"]
    positional = ["target/step0/rank0/dump.json", "golden/step0/rank0/dump.json", "-o", "out", "--fail-on", "never"]
    return {
        "trainmon --compat": [str(trainmon), "compare", *paths, "--compat"],
        "trainmon, CSV": [str(trainmon), "compare", *positional, "--format", "csv"],
        "trainmon, CSV and report": [str(trainmon), "compare", *positional],
        "msprobe": [str(msprobe), "compare", *paths],
    }


def main() -> int:
    """Makes the pairs, races, prints the tables."""
    parser = argparse.ArgumentParser(prog="compare.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trainmon", type=Path, required=True, help="the program, built with optimisation")
    parser.add_argument("--msprobe", type=Path, default=Path(sys.executable).parent / "msprobe")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", choices=("help", "statistics", "tensors"))
    parser.add_argument("--small", action="store_true", help="a quick look")
    parser.add_argument("--json", type=Path, help="write the raw numbers there")
    arguments = parser.parse_args()
    trainmon, msprobe = arguments.trainmon.resolve(), arguments.msprobe.absolute()
    size = SMALL if arguments.small else FULL
    wanted = arguments.only or ["help", "statistics", "tensors"]
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="compare-bench-") as scratch:
        if "help" in wanted:
            place = Path(scratch) / "help"
            place.mkdir()
            results["help"] = race({"trainmon --help": [str(trainmon), "--help"]}, place, 5 * arguments.rounds)
            report("help", results["help"])
        for kind, make in (("statistics", make_statistics), ("tensors", make_tensors)):
            if kind not in wanted:
                continue
            place = Path(scratch) / kind
            amount = apart(make, place, size)
            results[kind] = race(compare_commands(trainmon, msprobe), place, arguments.rounds)
            report(f"{kind}: {amount:,} {'nodes' if kind == 'statistics' else 'bytes a side'}", results[kind])
            if kind == "tensors":
                passes = apart(floors, place, 5)
                results["read-only"] = passes
                print(f"\nread-only pass over both sides, cached: {spread(passes, 3)} s")
                for name in ("trainmon --compat", "trainmon, CSV", "trainmon, CSV and report"):
                    walls = [cost["wall"] for cost in results[kind][name]["runs"]]
                    print(f"{name}: {statistics.median(walls) / statistics.median(passes):.1f} times that")
            shutil.rmtree(place)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
