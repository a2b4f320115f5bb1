"""`python -m faults OUT [--only NAME ...]`, from the directory above."""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from . import make, run
from .held_out.cases import CASES as HELD_OUT
from .held_out_tensor.cases import CASES as HELD_OUT_TENSOR
from .machines import trainer
from .machines.cases import CASES as MACHINES
from .plants import CASES


def main() -> int:
    """Makes the cases asked for. 1: at least one truth is not what the runs say."""
    parser = argparse.ArgumentParser(prog="faults", description="Pairs of dumps with one planted fault each.")
    parser.add_argument("out", type=Path, help="a directory, made if need be; cases that are there are made anew")
    parser.add_argument("--only", action="append", metavar="NAME", help="this case; may be said again")
    parser.add_argument("--mode", choices=("statistics", "tensor", "md5"), help="record all cases so")
    parser.add_argument("--keep-exact", action="store_true", help="keep the recordings that truths are checked with")
    parser.add_argument("--held-out", action="store_true", help="the cases of the held-out set")
    parser.add_argument("--held-out-tensor", action="store_true", help="those of the held-out set with whole tensors")
    parser.add_argument(
        "--machines", action="store_true", help="clean pairs of different machines, and faults over them"
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="with --machines: other weights and data; OUT must be another, too"
    )
    parser.add_argument(
        "--recorder", choices=run.RECORDERS, default=run.recorder, help="whose PrecisionDebugger records"
    )
    arguments = parser.parse_args()
    known = (
        HELD_OUT_TENSOR
        if arguments.held_out_tensor
        else HELD_OUT
        if arguments.held_out
        else MACHINES
        if arguments.machines
        else CASES
    )
    cases = [case for case in known if not arguments.only or case.name in arguments.only]
    if arguments.mode:
        cases = [replace(case, setting=replace(case.setting, task=arguments.mode)) for case in cases]
    if unknown := set(arguments.only or ()) - {case.name for case in known}:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    if arguments.seed is not None:
        if not arguments.machines:
            parser.error("--seed is for --machines")
        trainer.Machines.seed = arguments.seed
    run.recorder = arguments.recorder
    run.preload()
    out = arguments.out.resolve()
    wrong = [case.name for case in cases if make.make(out, case, keep_exact=arguments.keep_exact)]
    if not arguments.keep_exact:
        shutil.rmtree(out / make.EXACT, ignore_errors=True)
    print(f"{len(cases)} cases, {len(wrong)} truths not confirmed: {', '.join(wrong) or '-'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
