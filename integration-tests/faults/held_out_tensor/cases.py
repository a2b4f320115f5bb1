"""The held-out faults and clean pairs, recorded with all their tensors."""

from __future__ import annotations

from faults.case import Case

from . import backward, clean, forward, ranks

CASES: tuple[Case, ...] = (*forward.CASES, *backward.CASES, *ranks.CASES, *clean.CASES)
