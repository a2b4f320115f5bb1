"""`python -m device_kit.one_part NAME ...`: one part, in a process of its own. Started by the driver.

It imports torch, which takes seconds, and then waits for a line on standard input: so the next part can be started
while the one before it still runs.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path

from device_kit.machine import why_no_device
from device_kit.parts import PARTS
from device_kit.report import Report
from device_kit.setting import Setting


def main() -> int:
    """Runs the part; its rows are its answer. What a part raises is a row, what ends it is the driver's to tell."""
    parser = argparse.ArgumentParser(prog="device_kit.one_part")
    parser.add_argument("name", choices=[part.name for part in PARTS])
    parser.add_argument("--device", choices=("cuda", "cpu"), required=True)
    parser.add_argument("--rows", type=Path, required=True, help="the file that rows are appended to")
    parser.add_argument("--scratch", type=Path, required=True, help="an empty directory")
    parser.add_argument("--last", type=Path, action="append", default=[], help="where packages are looked for last")
    options = parser.parse_args()
    add_last(options.last)
    report = Report(options.name, options.rows)
    import torch  # noqa: F401

    # Its being there tells the driver that the part can begin.
    options.rows.touch()
    if not sys.stdin.readline():
        # The driver is gone.
        return 1
    why = why_no_device() if options.device == "cuda" else None
    with report.guard(options.name):
        module = importlib.import_module(next(part.module for part in PARTS if part.name == options.name))
        if why is not None:
            report.skipped(module.TITLES, why)
        else:
            module.run(Setting(options.device, options.device == "cpu", options.scratch), report)
    return 0


def add_last(places: list[Path]) -> None:
    """Has packages looked for there after everywhere else, in the processes that a part starts as well."""
    sys.path += [str(place) for place in places]
    os.environ["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)


if __name__ == "__main__":
    sys.exit(main())
