"""All of them."""

from __future__ import annotations

from faults.case import Case

from . import clean, half, others, pipelines, small, transformer

CASES: tuple[Case, ...] = (*clean.CASES, *transformer.CASES, *others.CASES, *pipelines.CASES, *small.CASES, *half.CASES)
