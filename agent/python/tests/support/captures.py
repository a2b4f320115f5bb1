"""Captures of a test: what belongs to the process is as at its start, and what a capture decided."""

from __future__ import annotations

from typing import Any

import pytest

from trainmon.captures.debugger import PrecisionDebugger
from trainmon.captures.saving import SingleSave


def no_debugger_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """msprobe's classes have one instance in a process. A test that makes one is a process of its own."""
    # Private: a script is not to make a second one.
    for one in (PrecisionDebugger, SingleSave):
        monkeypatch.setattr(one, "_instance", None)


def keeps_bits(capture: Any) -> bool:
    """Whether a capture, or a debugger, catches gradients in the way that changes no sum."""
    # Private: it is the user's to set, and nobody's to ask for.
    neutral: bool = capture._session.neutral
    return neutral
