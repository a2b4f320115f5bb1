"""What a part of the kit is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """A module of this package with `TITLES`, what it would measure, and `run(setting, report)`, which does."""

    name: str
    module: str
    seconds: float
    """After which it is ended. All parts together have less than the sum."""
