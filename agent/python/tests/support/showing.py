"""Holds a run in which every rank has whole tensors (DDP and what builds on it) against the reference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from support import runs, tiny


def assert_shows_reference(
    base: Path,
    reference: Sequence[tiny.Step],
    ranks: int,
    prefix: str,
    *,
    first: int = 0,
    steps: int,
    relative: float = 1e-4,
) -> None:
    """Local and aggregated gradients, moments (before each step), parameters, losses and norms of every rank and step
    from `first` to the reference's end; `steps` were made. `prefix` is what stands before the names of `TinyGpt`."""
    for rank in range(ranks):
        directory = runs.run_directory(base, rank)
        tables = {
            kind: runs.rows(directory, kind)
            for kind in ("grad_unreduced", "grad_reduced", "exp_avg", "exp_avg_sq", "param_origin", "param_updated")
        }
        lines = runs.steps(directory)
        assert [int(line["step"]) for line in lines] == list(range(first, steps))
        for number, step in list(enumerate(reference))[first:]:
            expected = {
                "grad_unreduced": step.local[rank],
                "grad_reduced": step.mean,
                "param_origin": step.before,
                "param_updated": step.after,
                "exp_avg": reference[number - 1].exp_avg if number else {},
                "exp_avg_sq": reference[number - 1].exp_avg_sq if number else {},
            }
            for kind, tensors in expected.items():
                shown = runs.by_name(tables[kind], number)
                what = f"{base.name} rank {rank} step {number} {kind}"
                assert set(shown) == {prefix + name for name in tensors}, what
                for name, tensor in tensors.items():
                    runs.assert_shows(shown[prefix + name], tensor, relative=relative, what=what)
            line = lines[number - first]
            assert float(line["grad_norm"]) == pytest.approx(step.norm, rel=relative)
            assert float(line["loss"]) == pytest.approx(step.loss[rank], rel=1e-5)
            assert float(line["learning_rate"]) == pytest.approx(1e-3)
