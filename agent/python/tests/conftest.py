"""What every test needs: a note of what was skipped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# First of all: it notes the environment as it is now.
from support import environment as _environment  # noqa: F401


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Appends `name: reason` of a skipped test to the file that TRAINMON_SKIP_LOG names."""
    log = os.environ.get("TRAINMON_SKIP_LOG")
    if log is None or not report.skipped or hasattr(report, "wasxfail"):
        return
    # pytest gives file, line and "Skipped: reason".
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    with Path(log).open("a", encoding="utf-8") as lines:
        lines.write(f"{report.nodeid.rpartition('/')[2]}: {reason.removeprefix('Skipped: ')}\n")
