"""The `trainmon` program, as a user has it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

#: Far beyond what any of these conversions takes.
PATIENCE_S = 120

REPOSITORY = Path(__file__).resolve().parents[4]


def program() -> Path:
    """The program that `cargo xtask test` has built, or one that cargo left in `target`."""
    built = Path(os.environ.get("TRAINMON_PROGRAM", REPOSITORY / "target" / "debug" / "trainmon"))
    if not built.is_file():
        pytest.skip(f"no program {built}: `cargo build -p trainmon-cli` builds it")
    return built


def compared(target: str | Path, *goldens: str | Path) -> tuple[int, dict[str, Any]]:
    """The exit status of `trainmon compare`, and its answer."""
    ended = trainmon("compare", target, *goldens, "--json")
    answer: dict[str, Any] = json.loads(ended.stdout)
    return ended.returncode, answer


def trainmon(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs it to its end."""
    command = [str(program()), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
