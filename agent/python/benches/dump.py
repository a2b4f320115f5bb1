"""What a capture adds to each operator: none, trainmon and the real msprobe, in one run.

    python dump.py [--operators 1000] [--rounds 5] [--json FILE]

Each contender runs in processes of its own, in turn. An operator is `torch.add` of two tensors: three tensors are
measured. At L0 it is a module's call around one. Times are the wall's, from before `start` to after `step` (msprobe
does much of its work in `stop`), divided by the operators; medians of the rounds are shown. Added time is that of a
contender less that of the bare loop.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CONTENDERS = ("none", "trainmon", "msprobe")
TASKS = ("statistics", "md5", "tensor")
LEVELS = ("L1", "L0", "mix")
SIZES = {"4x4": (4, 4), "4 MB": (1024, 1024)}

#: How much cheaper than msprobe a capture is to be, on small tensors: the added time as a part of msprobe's.
BOUNDS = {("statistics", "L1"): 1 / 20, ("statistics", "mix"): 1 / 15, ("tensor", "L1"): 1 / 3}

#: What writing large tensors may take, as a multiple of writing their bytes to files and nothing else.
MOST_OF_BARE_WRITE = 1.5


def config_of(task: str, level: str, place: str) -> dict[str, Any]:
    name = "statistics" if task == "md5" else task
    summary = "md5" if task == "md5" else "statistics"
    block = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": summary}
    common = {"task": name, "dump_path": place, "rank": [], "step": [], "level": level, "risk_level": "ALL"}
    return {**common, name: block}


def loop(model: Any, x: Any, y: Any, count: int) -> None:
    for _ in range(count):
        model(x, y)


def contend(who: str, task: str, level: str, size: tuple[int, int], count: int, rounds: int, answers: Any) -> None:
    import torch
    from torch import nn

    torch.set_num_threads(1)

    class Add(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return torch.add(x, y)

    model = nn.Sequential(Add())
    x, y = torch.rand(size), torch.rand(size)
    place = tempfile.mkdtemp(prefix="bench-dump-")
    debugger: Any = None
    if who != "none":
        path = Path(place) / "config.json"
        path.write_text(json.dumps(config_of(task, level, f"{place}/dump")))
        if who == "msprobe":
            from msprobe.pytorch import PrecisionDebugger
        else:
            from trainmon import PrecisionDebugger
        debugger = PrecisionDebugger(config_path=str(path))
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        if debugger is not None:
            debugger.start(model=model)
        loop(model[0], x, y, count)
        if debugger is not None:
            debugger.stop()
            debugger.step()
        times.append((time.perf_counter() - start) / count * 1e6)
        shutil.rmtree(f"{place}/dump", ignore_errors=True)
    shutil.rmtree(place, ignore_errors=True)
    # The first round imports and compiles.
    answers.put(times[1:])


def measure(who: str, task: str, level: str, size: tuple[int, int], count: int, rounds: int) -> float:
    os.environ["MSPROBE_LOG_LEVEL"] = "4"
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=contend, args=(who, task, level, size, count, rounds, answers))
    process.start()
    try:
        return statistics.median(answers.get(timeout=600))
    finally:
        process.join(60)


def bare_write(size: tuple[int, int], count: int) -> float:
    """Microseconds to write the bytes of an operator's three tensors to files, and nothing else."""
    data = os.urandom(4 * size[0] * size[1])
    with tempfile.TemporaryDirectory(prefix="bench-dump-") as place:
        start = time.perf_counter()
        for number in range(3 * count):
            Path(place, str(number)).write_bytes(data)
        return (time.perf_counter() - start) / count * 1e6


def against_bare_write(size: str, count: int, rounds: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the last capture of tensors at L1 of this size added, beside a plain write of the same bytes."""
    written = statistics.median(bare_write(SIZES[size], count) for _ in range(rounds))
    last = [row for row in rows if (row.get("size"), row.get("task"), row.get("level")) == (size, "tensor", "L1")][-1]
    times = (last["trainmon"] - last["none"]) / written
    told = f"{written:.1f} us per operator; tensor, L1 adds {times:.2f} times that"
    print(f"{size:>11} writing the same bytes: {told}", end="")
    is_kept = "kept" if times <= MOST_OF_BARE_WRITE else "BROKEN"
    print("" if size == "4x4" else f"  (bound {MOST_OF_BARE_WRITE}: {is_kept})", flush=True)
    return {"size": size, "bare write": written, "times": times}


def main() -> int:
    parser = argparse.ArgumentParser(description="What a capture adds to each operator, beside the real msprobe.")
    parser.add_argument("--operators", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", default="4x4,4 MB")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--levels", default=",".join(LEVELS))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = []
    heads = "".join(f"{head:>11}" for head in ("size", "task", "level", *CONTENDERS))
    print(f"{heads}   part of msprobe's added time (us per operator)")
    for size in arguments.sizes.split(","):
        count = arguments.operators if size == "4x4" else max(4, arguments.operators // 100)
        for task in arguments.tasks.split(","):
            for level in arguments.levels.split(","):
                took = {who: measure(who, task, level, SIZES[size], count, arguments.rounds) for who in CONTENDERS}
                part = (took["trainmon"] - took["none"]) / (took["msprobe"] - took["none"])
                rows.append({"size": size, "task": task, "level": level, **took, "part": part})
                bound = BOUNDS.get((task, level)) if size == "4x4" else None
                verdict = "" if bound is None else f"  (bound {bound:.3f}: {'kept' if part <= bound else 'BROKEN'})"
                figures = "".join(f"{took[who]:>11.1f}" for who in CONTENDERS)
                print(f"{size:>11}{task:>11}{level:>11}{figures}   {part:.3f}{verdict}", flush=True)
        if "tensor" in arguments.tasks and "L1" in arguments.levels:
            rows.append(against_bare_write(size, count, arguments.rounds, rows))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
