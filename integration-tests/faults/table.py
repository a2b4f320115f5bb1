"""`python -m faults.table faults/CASES.md`: writes the table of all cases into the page, between its two marks."""

from __future__ import annotations

import sys
from pathlib import Path

from .case import Case
from .plants import CASES

MARKS = ("<!-- cases -->\n", "<!-- end of cases -->\n")


def row(case: Case) -> str:
    """One case."""
    setting, truth = case.setting, case.truth
    place = (
        "-"
        if truth.step is None
        else f"step {truth.step}, {'every rank' if truth.rank is None else f'rank {truth.rank}'}"
    )
    verdict = " / ".join((truth.verdict, *truth.also))
    operators = ", ".join(f"`{name}`" for name in truth.operators) or "-"
    kind = f"{setting.level} {setting.task}"
    cells = (
        f"`{case.name}`",
        setting.net,
        str(setting.ranks),
        kind,
        truth.phase,
        truth.what,
        verdict,
        place,
        operators,
    )
    return f"| {' | '.join(cells)} |\n"


def table() -> str:
    """All cases as Markdown."""
    heads = ("case", "net", "ranks", "recorded", "phase", "what", "verdict", "where", "operators")
    return f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}\n{''.join(row(case) for case in CASES)}"


def main() -> int:
    page = Path(sys.argv[1])
    before, rest = page.read_text().split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    page.write_text(f"{before}{MARKS[0]}\n{table()}\n{MARKS[1]}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
