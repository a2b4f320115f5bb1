"""What a capture adds to a model's whole step: trainmon and the real msprobe, in one run.

    python captured_step.py [--rounds 15] [--processes 2] [--cases statistics-L0,...] [--json FILE]

The model is a GPT of four blocks, width 128, batches of 4 x 64 tokens, on one thread. Each contender runs in processes
of its own, in turn, in each of which steps with and without a capture take turns. Added time is the median of what a
captured step takes longer than the step before it, from before `start` to after `step` (msprobe does much of its work
in `stop`), in the better of the processes. Beside it stand the entries of the step, and a read-only pass over the bytes
of their tensors: a capture is to take twice that and 15 us for each entry at most. A third contender, `nothing`, puts
torch's own hooks and mode in the same places and has them do nothing; and as many writes to a file as there are entries
are timed: each is in the record file before the next operation runs, so that a killed training loses none.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dump import config_of, put_away
from gpts import Size, build

GPT = Size(vocabulary=512, width=128, heads=4, layers=4, length=64, batch=4)
CASES = ("statistics-L0", "statistics-L1", "statistics-mix", "md5-mix", "tensor-L1")

#: The added time as a part of msprobe's.
BOUNDS = {"statistics-L0": 1 / 10, "statistics-L1": 1 / 15, "statistics-mix": 1 / 15}
#: What an entry may take beside reading its tensors twice.
ENTRY_S = 15e-6
#: Of tensors that are read as a floor: no cache of the machine holds all of them.
ARENA = 64 << 20


class Captured(NamedTuple):
    """What a step captured."""

    entries: int = 0
    size: int = 0
    """Bytes of their tensors."""
    read: float = 0.0
    """Seconds for one read of as many bytes."""
    write: float = 0.0
    """Seconds for as many writes."""


def contend(who: str, case: str, rounds: int, root: str, answers: Any) -> None:
    """Answers with the times of steps without and with a capture, and what one of these captured."""
    import torch
    from torch.nn import functional

    torch.set_num_threads(1)
    task, level = case.split("-")
    model = build(GPT)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(GPT.vocabulary, (GPT.batch, GPT.length))
    place = tempfile.mkdtemp(dir=root)
    path = Path(place, "config.json")
    path.write_text(json.dumps(config_of(task, level, f"{place}/dump")))
    debugger: Any
    if who == "nothing":
        debugger = Nothing(level)
    elif who == "msprobe":
        from msprobe.pytorch import PrecisionDebugger

        debugger = PrecisionDebugger(config_path=str(path))
    else:
        from trainmon import PrecisionDebugger as Ours

        debugger = Ours(config_path=str(path))

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()

    times: dict[str, list[float]] = {"bare": [], "captured": []}
    found = Captured()
    # The first imports and compiles.
    for number in range(rounds + 1):
        start = time.perf_counter()
        step()
        bare = time.perf_counter() - start
        start = time.perf_counter()
        debugger.start(model=model)
        step()
        debugger.stop()
        debugger.step()
        if number:
            times["bare"].append(bare)
            times["captured"].append(time.perf_counter() - start)
        if number == rounds and who != "nothing":
            found = captured(Path(place, "dump"))
        put_away(Path(place, "dump"), "4x4")
    answers.put((times, found))


class Nothing:
    """Hooks and a mode where a capture of this level has some; they do nothing."""

    def __init__(self, level: str) -> None:
        self._level = level
        self._handles: list[Any] = []
        self._mode: Any = None

    def start(self, model: Any) -> None:
        import torch
        from torch.overrides import TorchFunctionMode

        def idle(*_: Any) -> None: ...

        class Idle(TorchFunctionMode):
            def __torch_function__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
                result = function(*args, **(kwargs or {}))
                if isinstance(result, torch.Tensor) and result.grad_fn is not None:
                    result.grad_fn.register_hook(idle)
                return result

        if self._level in {"L0", "mix"}:
            for name, module in model.named_modules():
                if name:
                    self._handles.append(module.register_forward_pre_hook(idle, with_kwargs=True))
                    self._handles.append(module.register_forward_hook(idle, with_kwargs=True, always_call=True))
                    self._handles.append(module.register_full_backward_hook(idle))
            self._handles += [one.register_post_accumulate_grad_hook(idle) for one in model.parameters()]
        if self._level in {"L1", "mix"}:
            self._mode = Idle()
            self._mode.__enter__()

    def stop(self) -> None:
        if self._mode is not None:
            self._mode.__exit__(None, None, None)
            self._mode = None
        while self._handles:
            self._handles.pop().remove()

    def step(self) -> None: ...


def captured(dump: Path) -> Captured:
    """What a step captured, and the seconds that one read of as many bytes and as many writes take."""
    import torch

    from trainmon._trainmon import read_only_pass

    (document,) = dump.glob("**/dump.json")
    data = json.loads(document.read_text())["data"]
    sizes = [size for entry in data.values() for size in sizes_in(entry)]
    arena, place = torch.ones(ARENA // 4), 0
    parts = []
    for size in sizes:
        count = size // 4
        place = 0 if place + count > arena.numel() else place
        parts.append(arena[place : place + count])
        place += count
    reads = []
    for _ in range(3):
        start = time.perf_counter()
        for part in parts:
            read_only_pass(part)
        reads.append(time.perf_counter() - start)
    entry = b" " * (document.stat().st_size // len(data))
    writes = []
    with tempfile.TemporaryFile(dir=dump, buffering=0) as file:
        for _ in range(3):
            start = time.perf_counter()
            for _ in data:
                file.write(entry)
            writes.append(time.perf_counter() - start)
    return Captured(len(data), sum(sizes), min(reads), min(writes))


def sizes_in(value: Any) -> Iterator[int]:
    """The bytes of each tensor that a document tells of."""
    if isinstance(value, dict):
        if value.get("type") in ("torch.Tensor", "torch.nn.Parameter") and "shape" in value:
            count = 1
            for size in value["shape"]:
                count *= size
            yield count * (8 if value["dtype"] == "torch.int64" else 4)
            return
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from sizes_in(one)


def measure(who: str, case: str, rounds: int, root: str) -> tuple[dict[str, list[float]], Captured]:
    os.environ["MSPROBE_LOG_LEVEL"] = "4"
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=contend, args=(who, case, rounds, root, answers))
    process.start()
    found: tuple[dict[str, list[float]], Captured] = answers.get(timeout=1200)
    process.join(60)
    return found


def added(times: dict[str, list[float]]) -> float:
    return statistics.median(on - off for on, off in zip(times["captured"], times["bare"], strict=True))


def measure_case(case: str, rounds: int, processes: int, root: str) -> dict[str, Any]:
    """A row of the table."""
    runs: dict[str, list[Any]] = {"trainmon": [], "msprobe": [], "nothing": []}
    for _ in range(processes):
        for who, of in runs.items():
            of.append(measure(who, case, rounds, root))
    ours, theirs, nothing = (min(added(times) for times, _ in of) for of in runs.values())
    bare = statistics.median(statistics.median(times["bare"]) for times, _ in runs["trainmon"])
    entries, size, _, _ = runs["trainmon"][0][1]
    read = min(found.read for _, found in runs["trainmon"])
    write = min(found.write for _, found in runs["trainmon"])
    floor, part = 2 * read + ENTRY_S * entries, ours / theirs
    bound = BOUNDS.get(case)
    told = "" if bound is None else f" (bound {bound:.3f}: {'kept' if part <= bound else 'BROKEN'})"
    print(
        f"{case:>15}{1e3 * bare:>8.1f}{1e3 * ours:>10.1f}{1e3 * theirs:>10.1f}   {part:.3f}{told}; "
        f"{entries} entries, {size / 1e6:.1f} MB read in {1e3 * read:.1f} ms: twice that and 15 us an entry are "
        f"{1e3 * floor:.1f} ms ({'kept' if ours <= floor else 'BROKEN'}, {1e6 * (ours - 2 * read) / entries:.1f} us); "
        f"hooks that do nothing {1e3 * nothing:.1f} ms, writes {1e3 * write:.1f} ms",
        flush=True,
    )
    found = {
        "bare": bare,
        "trainmon": ours,
        "msprobe": theirs,
        "nothing": nothing,
        "entries": entries,
        "read": read,
        "write": write,
    }
    return {"case": case, **found}


def main() -> int:
    parser = argparse.ArgumentParser(description="What a capture adds to a model's step, beside the real msprobe.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    print(f"{'task, level':>15}{'step':>8}{'trainmon':>10}{'msprobe':>10}   part of msprobe's added time (ms)")
    with tempfile.TemporaryDirectory(prefix="bench-step-") as root:
        cases = arguments.cases.split(",")
        rows = [measure_case(case, arguments.rounds, arguments.processes, root) for case in cases]
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
