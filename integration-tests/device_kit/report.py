"""What a part of the kit found: rows, written as they come, so that a part that is killed leaves those it had."""

from __future__ import annotations

import contextlib
import json
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

#: A check that held; one that did not; a figure without a bound; something that raised; something that cannot run here.
VERDICTS = ("ok", "BROKEN", "measured", "FAILED", "skipped")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    part: str
    what: str
    value: float | str | None
    unit: str
    verdict: str
    detail: str = ""


class Report:
    """Takes the rows of one part."""

    def __init__(self, part: str, file: Path) -> None:
        self._part = part
        self._file = file

    def check(self, what: str, holds: bool, value: float | str | None = None, unit: str = "", detail: str = "") -> None:
        """A claim, and whether it held."""
        self._add(what, value, unit, "ok" if holds else "BROKEN", detail)

    def measured(self, what: str, value: float | str, unit: str = "", detail: str = "") -> None:
        """A figure that nothing is claimed of."""
        self._add(what, value, unit, "measured", detail)

    def skipped(self, what: str | Iterable[str], why: str) -> None:
        """What cannot run here, by name, with the reason."""
        for one in (what,) if isinstance(what, str) else what:
            self._add(one, None, "", "skipped", why)

    @contextlib.contextmanager
    def guard(self, what: str) -> Iterator[None]:
        """What raises inside becomes a row; the part goes on."""
        try:
            yield
        except Exception as error:  # whatever a device answers: the parts after this one still run
            trace = "".join(traceback.format_exception(error)[-4:])
            self._add(what, None, "", "FAILED", f"{type(error).__name__}: {error}\n{trace}")

    def _add(self, what: str, value: float | str | None, unit: str, verdict: str, detail: str) -> None:
        row: dict[str, Any] = asdict(Row(self._part, what, value, unit, verdict, detail))
        with self._file.open("a") as out:
            out.write(json.dumps(row) + "\n")


def rows_of(file: Path) -> list[Row]:
    """The rows a part wrote; none if it did not come to the first. A last line that was cut off is left out."""
    rows = []
    for line in file.read_text().splitlines() if file.exists() else []:
        with contextlib.suppress(json.JSONDecodeError, TypeError):
            rows.append(Row(**json.loads(line)))
    return rows
