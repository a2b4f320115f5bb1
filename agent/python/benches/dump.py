"""What a capture adds to each operator: none, trainmon and the real msprobe, in one run.

    python dump.py [--operators 1000] [--rounds N] [--settling 20] [--processes 3] [--contents same,chain,distinct]
        [--device cuda] [--json FILE]

Each contender runs in processes of its own, in turn, and so often: what memory a process is
given decides more than all that a round may meet. An operator is `torch.add` of two tensors: three tensors are
measured. At L0 it is a module's call around one. Times are the wall's, from before `start` to after `step` (msprobe
does much of its work in `stop`), divided by the operators; medians of all rounds are shown. Added time is that of a
contender less that of the bare loop.

Tensors of 4 MB are captured with each of the `contents`: `distinct`, no two tensors of a step are the same; `chain`,
each operator takes what the one before gave, and one parameter; `same`, all operators do the same. Beside them
`plain` writes every one of the tensors to a file of its own in a directory there, and does nothing else. Rounds of
the bare loop, of `plain` and of the contender take turns in one process here: the machine's speed and the process's
memory are the same for all three, and decide more than what they do. The first rounds of a process (`--settling`)
wait for memory that the machine never gave it before; what they show is printed beside, and is in no median.

With `--device cuda` the tensors lie there, and a round begins and ends when the device has done all that was queued.
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
from collections import defaultdict
from pathlib import Path
from typing import Any

CAPTURES = ("trainmon", "msprobe")
CONTENDERS = ("none", *CAPTURES)
CONTENTS = ("same", "chain", "distinct")
TASKS = ("statistics", "md5", "tensor")
LEVELS = ("L1", "L0", "mix")
SIZES = {"4x4": (4, 4), "4 MB": (1024, 1024)}

#: Rounds of a process that come before those that count, where large tensors are written; elsewhere the first.
SETTLING = 20

#: Of each that takes turns in a process, in the order of the rounds.
Times = dict[str, list[float]]

#: What tells one row from another.
CASE = ("size", "task", "level", "contents")

#: How much cheaper than msprobe a capture is to be, on small tensors and for large ones that are written: the added
#: time as a part of msprobe's.
BOUNDS = {
    ("statistics", "L1"): 1 / 20,
    ("statistics", "mix"): 1 / 15,
    **{("tensor", level): 1 / 3 for level in LEVELS},
}

#: What writing large tensors may take, as a multiple of writing their bytes to files and nothing else.
MOST_OF_BARE_WRITE = 1.5


def config_of(task: str, level: str, place: str) -> dict[str, Any]:
    name = "statistics" if task == "md5" else task
    summary = "md5" if task == "md5" else "statistics"
    block = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": summary}
    common = {"task": name, "dump_path": place, "rank": [], "step": [], "level": level, "risk_level": "ALL"}
    return {**common, name: block}


def pairs_of(contents: str, size: tuple[int, int], count: int, device: str) -> list[tuple[Any, Any]]:
    """What each operator is given. In a chain the first of them is what the last operator gave, after the first."""
    import torch

    fresh = count if contents == "distinct" else 1
    pairs = [(torch.rand(size, device=device), torch.rand(size, device=device)) for _ in range(fresh)]
    return pairs if contents == "distinct" else pairs * count


def loop(model: Any, pairs: list[tuple[Any, Any]], is_chain: bool) -> None:
    given = None
    for x, y in pairs:
        given = model(given if is_chain and given is not None else x, y)


def write_plainly(place: str, pairs: list[tuple[Any, Any]], is_chain: bool) -> None:
    """Calls the operators, and writes every tensor to a file."""
    import torch

    directory = Path(place, "dump")
    directory.mkdir()
    given = None
    for number, (first, y) in enumerate(pairs):
        x = given if is_chain and given is not None else first
        given = torch.add(x, y)
        for role, tensor in enumerate((x, y, given)):
            with Path(directory, f"{number}.{role}").open("wb", buffering=0) as file:
                file.write(memoryview(tensor.cpu().numpy()).cast("B"))


def writes_large_files(size: str, task: str) -> bool:
    """Whether what a case writes is worth to be held against a plain write."""
    return task == "tensor" and size == "4 MB"


def put_away(dump: Path, size: str) -> None:
    """Makes room for the next round's files. Small ones stay until the program's end: ext4 passes over every inode that
    was deleted in the last five seconds, or minutes where that is not on the disk yet, and thousands of them make the
    next files ten times as slow."""
    if size == "4 MB":
        shutil.rmtree(dump, ignore_errors=True)
    elif dump.exists():
        dump.rename(dump.with_name(f"dump-{time.monotonic_ns()}"))


def contend(
    who: str, beside: tuple[str, ...], case: dict[str, Any], count: int, rounds: int, root: str, answers: Any
) -> None:
    """Runs a contender, and in each of its rounds those beside it, in turn. Answers with the times of each."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    task, level, size, contents = case["task"], case["level"], SIZES[case["size"]], case["contents"]

    class Add(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return torch.add(x, y)

    model = nn.Sequential(Add())
    pairs = pairs_of(contents, size, count, case["device"])
    wait = torch.cuda.synchronize if case["device"] == "cuda" else lambda: None
    is_chain = contents == "chain"
    place = tempfile.mkdtemp(dir=root)
    debugger: Any = None
    if who in {"trainmon", "msprobe"}:
        path = Path(place) / "config.json"
        path.write_text(json.dumps(config_of(task, level, f"{place}/dump")))
        if who == "msprobe":
            from msprobe.pytorch import PrecisionDebugger
        else:
            from trainmon import PrecisionDebugger
        debugger = PrecisionDebugger(config_path=str(path))

    def run(name: str) -> float:
        wait()
        start = time.perf_counter()
        if name == "plain":
            write_plainly(place, pairs, is_chain)
        elif name == "none":
            loop(model[0], pairs, is_chain)
        else:
            debugger.start(model=model)
            loop(model[0], pairs, is_chain)
            debugger.stop()
            debugger.step()
        wait()
        took = (time.perf_counter() - start) / count * 1e6
        put_away(Path(place, "dump"), case["size"])
        return took

    names = (*beside, who)
    times: Times = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            times[name].append(run(name))
    answers.put(times)


def measure(who: str, beside: tuple[str, ...], case: dict[str, Any], count: int, rounds: int, root: str) -> Times:
    os.environ["MSPROBE_LOG_LEVEL"] = "4"
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=contend, args=(who, beside, case, count, rounds, root, answers))
    process.start()
    try:
        while answers.empty():
            process.join(0.1)
            if not process.is_alive() and answers.empty():
                raise RuntimeError(f"{who} ended with exit code {process.exitcode}")
        found: Times = answers.get(timeout=60)
        return found
    finally:
        process.join(60)


def added(times: Times, name: str) -> float:
    """The median of what a round took longer than the one of the bare loop before it."""
    return statistics.median(one - bare for one, bare in zip(times[name], times["none"], strict=True))


def measure_case(
    case: dict[str, Any], count: int, rounds: int, settling: int, processes: int, root: str
) -> dict[str, Any]:
    """A row of the table; of large tensors that are written, with what a plain write of the same bytes takes."""
    is_written = writes_large_files(case["size"], case["task"])
    contenders, beside = (CAPTURES, ("none", "plain")) if is_written else (CONTENDERS, ())
    if not is_written:
        # It imports and compiles.
        settling = 1
    first: dict[str, Times] = {who: defaultdict(list) for who in contenders}
    later: dict[str, Times] = {who: defaultdict(list) for who in contenders}
    for _ in range(processes):
        for who in contenders:
            for name, times in measure(who, beside, case, count, settling + rounds, root).items():
                first[who][name] += times[:settling]
                later[who][name] += times[settling:]
    if not is_written:
        # No round of the bare loop is beside another's.
        bare = [statistics.median(later["none"]["none"])]
        for who in CAPTURES:
            later[who]["none"] = bare * len(later[who][who])
    took = {"none": statistics.median(later["trainmon"]["none"])}
    took |= {who: statistics.median(later[who][who]) for who in CAPTURES}
    part = added(later["trainmon"], "trainmon") / added(later["msprobe"], "msprobe")
    figures = "".join(f"{took[who]:>11.1f}" for who in CONTENDERS)
    print("".join(f"{case[head]:>11}" for head in CASE) + f"{figures}   {part:.3f}", end="")
    bound = BOUNDS.get((case["task"], case["level"]))
    if bound is not None and (is_written or case["size"] == "4x4"):
        print(f"  (bound {bound:.3f}: {'kept' if part <= bound else 'BROKEN'})", end="")
    row = {**case, **took, "part": part}
    row["spread"] = {who: (min(later[who][who]), max(later[who][who])) for who in contenders}
    if is_written:
        row |= beside_a_plain_write(first["trainmon"], later["trainmon"])
    print(flush=True)
    return row


def beside_a_plain_write(first: Times, later: Times) -> dict[str, Any]:
    """What a capture took as a multiple of a plain write, in its first rounds and in those that count."""
    row: dict[str, Any] = {"plain": statistics.median(later["plain"])}
    row["times"] = added(later, "trainmon") / added(later, "plain")
    verdict = "kept" if row["times"] <= MOST_OF_BARE_WRITE else "BROKEN"
    print(f"; plain {row['plain']:.1f}: {row['times']:.2f} times (bound {MOST_OF_BARE_WRITE}: {verdict})", end="")
    if first["plain"]:
        row["first_times"] = added(first, "trainmon") / added(first, "plain")
        print(f", in the first rounds {row['first_times']:.2f}", end="")
    # One round has no spread.
    for who in ("trainmon", "plain") if len(later["plain"]) > 1 else ():
        tenths = statistics.quantiles(later[who], n=10)
        print(f"; {who} {tenths[0]:.0f} to {tenths[-1]:.0f}", end="")
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description="What a capture adds to each operator, beside the real msprobe.")
    parser.add_argument("--operators", type=int, default=1000)
    parser.add_argument(
        "--rounds", type=int, help="that count, in each process; without it 5, and 40 of tensors of 4 MB"
    )
    parser.add_argument(
        "--settling", type=int, default=SETTLING, help="rounds before them, where large tensors are written"
    )
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--sizes", default="4x4,4 MB")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--levels", default=",".join(LEVELS))
    parser.add_argument("--contents", default=",".join(CONTENTS))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the tensors lie")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = []
    heads = "".join(f"{head:>11}" for head in (*CASE, *CONTENDERS))
    print(f"{heads}   part of msprobe's added time (us per operator)")
    with tempfile.TemporaryDirectory(prefix="bench-dump-") as root:
        for size in arguments.sizes.split(","):
            count = arguments.operators if size == "4x4" else max(4, arguments.operators // 100)
            rounds = arguments.rounds or (5 if size == "4x4" else 40)
            for task in arguments.tasks.split(","):
                all_contents = arguments.contents.split(",") if writes_large_files(size, task) else ["same"]
                for level in arguments.levels.split(","):
                    for contents in all_contents:
                        case = {"size": size, "task": task, "level": level, "contents": contents}
                        case["device"] = arguments.device
                        rows.append(measure_case(case, count, rounds, arguments.settling, arguments.processes, root))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
