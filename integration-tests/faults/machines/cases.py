"""All of them."""

from __future__ import annotations

from faults.case import Case

from . import clean, pipelines, planted

CASES: tuple[Case, ...] = (*clean.CASES, *planted.CASES, *pipelines.CASES)
