"""Makes a recording of what trainmon wrote about a run of the demo (`cargo xtask demo`, watched as `demo.json` says).

    python demo.py RUN_DIRECTORY NAME [FAULT@STEP...]    writes demo_NAME.csv beside this file

The faults are those the demo was started with, `spike@STEP` or `nan@STEP`, and are what is marked. Loss and gradient norm
are those of `steps.csv`; the norm of the update is put together from its norms per tensor in `update_*.csv`.
"""

from __future__ import annotations

import csv
import math
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from recording import Step, write


def rows(files: list[Path]) -> Iterator[dict[str, str]]:
    for file in files:
        with file.open(newline="") as opened:
            yield from csv.DictReader(opened)


def main(run: Path, name: str, faults: list[str]) -> None:
    events = {int(step): kind for kind, step in (fault.split("@") for fault in faults)}
    squares: dict[int, float] = defaultdict(float)
    for row in rows(sorted(run.glob("update_[0-9]*.csv"))):
        squares[int(row["step"])] += float(row["norm"]) ** 2
    steps = []
    for row in rows([run / "steps.csv"]):
        number = int(row["step"])
        # Every step has its change, of zero where the optimizer was not asked for one.
        update = math.sqrt(squares.pop(number))
        steps.append(Step(number, float(row["loss"]), float(row["grad_norm"]), update, events.pop(number, "")))
    if events or squares or not steps:
        sys.exit(f"{run} lacks the steps {sorted({*events, *squares})}")
    write(Path(__file__).with_name(f"demo_{name}.csv"), steps)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
