"""Which ranks that come last are told of: none among equal ones, and each that is late, once."""

from __future__ import annotations

import random
import statistics

import pytest

from trainmon.collectives.latecomers import Latecomers

WINDOWS = 60


def windows(ranks: int, step: float, scatter: float, seed: int, late: dict[int, float]) -> list[tuple[int, float]]:
    """For each window the rank that comes last, and by how much: each rank's own work varies by some part of a step,
    and `late` ranks take longer by so many seconds."""
    generator = random.Random(seed)
    found = []
    for _ in range(WINDOWS):
        works = [step * (1 + generator.gauss(0, scatter)) + late.get(rank, 0.0) for rank in range(ranks)]
        # Who works longest waits least.
        waits = {rank: max(works) - work for rank, work in enumerate(works)}
        last = min(waits, key=lambda rank: waits[rank])
        median = statistics.median(wait for rank, wait in waits.items() if rank != last)
        found.append((last, median - waits[last]))
    return found


def told(judged: Latecomers, found: list[tuple[int, float]], step: float) -> list[int]:
    return [rank for rank, lag in found if judged.is_told("world", rank, lag, step)]


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("step", [0.004, 0.05, 0.5])
@pytest.mark.parametrize("scatter", [0.02, 0.1, 0.3])
def test_equal_ranks_are_none(ranks: int, step: float, scatter: float) -> None:
    """Nor nearly any of those that scatter by a third of a step from window to window, which none at rest does."""
    wrong = sum(len(told(Latecomers(), windows(ranks, step, scatter, seed, {}), step)) for seed in range(20))
    assert wrong <= (20 * WINDOWS / 200 if scatter > 0.2 else 0)


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("step", [0.004, 0.05, 0.2])
def test_a_rank_that_is_late_by_50_ms_is_told_of_once(ranks: int, step: float) -> None:
    found = [told(Latecomers(), windows(ranks, step, 0.02, seed, {1: 0.05}), step + 0.05) for seed in range(10)]
    assert found == [[1]] * 10


def test_a_lag_that_nobody_would_look_for_is_none() -> None:
    """Half a millisecond of a step of four, of one rank or of both in turn."""
    for found in ([(1, 0.0005)] * WINDOWS, [(number % 2, 0.0005) for number in range(WINDOWS)]):
        assert told(Latecomers(), found, 0.0045) == []


def test_a_rank_is_told_again_after_a_calm_and_another_one_at_once() -> None:
    judged, late, calm = Latecomers(), [(1, 0.1)] * 5, [(0, 0.0)] * 10
    assert told(judged, [*late, *late, (0, 0.0), *late, *late], 0.2) == [1]
    assert told(judged, [(0, 0.1)] * 7, 0.2) == [0]
    assert told(judged, [*calm, *late, *late], 0.2) == [1]
    found = [judged.is_told("dp", 1, 0.15, 0.2) for _ in range(4)]
    assert found == [False, False, True, False], "a group of its own, and most of a step"
