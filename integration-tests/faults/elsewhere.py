"""`python -m faults.elsewhere CASE TARGET RECORDER SEED`: a case's target side, by the interpreter that runs this."""

from __future__ import annotations

import sys
from pathlib import Path

from . import run
from .machines import trainer
from .machines.cases import CASES


def main() -> int:
    """Records it. Another version of torch needs another interpreter than that of the golden side."""
    name, target, run.recorder, seed = sys.argv[1:]
    trainer.Machines.seed = int(seed)
    case = next(case for case in CASES if case.name == name)
    run.preload()
    run.dump(Path(target), run.Side(case.setting, case.setting.task, case.plant, case.kernel, case.trainer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
