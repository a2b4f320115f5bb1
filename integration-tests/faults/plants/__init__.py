"""The faults, by where they show first."""

from __future__ import annotations

from faults.case import Case

from . import backward, clean, data, forward, forward_kernels, noisy, optimizer, ranks, ranks_collectives

CASES: tuple[Case, ...] = (
    *forward.CASES,
    *forward_kernels.CASES,
    *data.CASES,
    *backward.CASES,
    *optimizer.CASES,
    *ranks.CASES,
    *ranks_collectives.CASES,
    *noisy.CASES,
    *clean.CASES,
)
