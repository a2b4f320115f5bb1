"""Captures of a test: what belongs to the process is as at its start, and what a capture decided."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainmon.captures.debugger import PrecisionDebugger
from trainmon.captures.saved_values import SingleSave


def no_debugger_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """msprobe's classes have one instance in a process. A test that makes one is a process of its own."""
    # Private: a script is not to make a second one.
    for one in (PrecisionDebugger, SingleSave):
        monkeypatch.setattr(one, "_instance", None)


def document(place: Path, step: int = 0, name: str = "dump.json") -> dict[str, Any]:
    """A file of the one rank that captured a step."""
    (directory,) = (place / f"step{step}").iterdir()
    found: dict[str, Any] = json.loads((directory / name).read_text())
    return found


def entries(place: Path, step: int = 0, name: str = "dump.json") -> dict[str, Any]:
    """What it has of every call; all of it, where a file has nothing else."""
    found = document(place, step, name)
    entries: dict[str, Any] = found.get("data", found)
    return entries


def keeps_bits(capture: Any) -> bool:
    """Whether a capture, or a debugger, catches gradients in the way that changes no sum."""
    # Private: it is the user's to set, and nobody's to ask for.
    neutral: bool = capture._session.neutral
    return neutral
