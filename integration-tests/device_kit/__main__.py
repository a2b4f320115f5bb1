"""`run.sh`, or `python -m device_kit`: runs every part and writes the table."""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path

from device_kit.driver import ROOT, USUAL_SECONDS, Driver, facts_of_kit
from device_kit.parts import PARTS
from device_kit.table import write

#: How long all parts together may take in the dry form.
DRY_SECONDS = 60.0


def main() -> int:
    """0 if every check that ran held; 1 if one did not or something failed; 2 for wrong use."""
    options = _options()
    out: Path = options.out or ROOT / "out"
    out.mkdir(parents=True, exist_ok=True)
    chosen = [part for part in PARTS if options.only is None or part.name in options.only]
    seconds = options.seconds or (DRY_SECONDS if options.dry else USUAL_SECONDS)
    kit = facts_of_kit()
    outcome = Driver(chosen, out, seconds, lambda found: write(out, found, kit), is_dry=options.dry).run()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What a part says may have letters that this terminal has not.
        sys.stdout.reconfigure(errors="replace")
    sys.stdout.write(write(out, outcome, kit))
    sys.stderr.write(f"device kit: the table and device.json are in {out}\n")
    return 0 if outcome.is_good else 1


def _options() -> argparse.Namespace:
    names = [part.name for part in PARTS]
    parser = argparse.ArgumentParser(
        prog="run.sh",
        description="Everything there is to learn from one GPU, in at most six minutes: a table and raw JSON.",
        epilog=f"The parts: {', '.join(names)}. Nothing is installed, and no setting of the machine is changed.",
    )
    parser.add_argument("--dry", action="store_true", help="on the CPU, with small sizes: shows that every part runs")
    parser.add_argument("--out", type=Path, help="where the table goes (default: `out` beside this script)")
    parser.add_argument("--only", metavar="PART[,PART]", help="these parts only")
    parser.add_argument("--seconds", type=float, help="how long all parts together may take")
    options = parser.parse_args()
    if options.only is not None:
        options.only = options.only.split(",")
        unknown = [name for name in options.only if name not in names]
        if unknown:
            parser.error(f"there is no part {', '.join(map(repr, unknown))}; there are {', '.join(names)}")
    if options.seconds is not None and options.seconds <= 0:
        parser.error("--seconds must be more than 0")
    return options


if __name__ == "__main__":
    sys.exit(main())
