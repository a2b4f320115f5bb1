"""The held-out faults and clean pairs."""

from __future__ import annotations

from faults.case import Case

from . import attention, clean, convolution_and_double, ranks, recurrent

CASES: tuple[Case, ...] = (
    *recurrent.CASES,
    *attention.CASES,
    *convolution_and_double.CASES,
    *ranks.CASES,
    *clean.CASES,
)
