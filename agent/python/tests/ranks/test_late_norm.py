"""A sum over ranks that comes when many steps are over: the step waits for it, or it is said that it is missing."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainmon._trainmon import Monitor, ParsedConfig
from trainmon.measurement.norm import UNKNOWN, GlobalNorm, StepNorm
from trainmon.ranks import exchange


class SlowExchange:
    """Keeps every sum until it is asked for it: an exchange whose thread does not get its turn."""

    def __init__(self) -> None:
        self.kept: list[tuple[float, Callable[[float | None], None]]] = []

    def submit(self, step: int, squares: float, done: Callable[[float | None], None]) -> None:
        self.kept.append((squares, done))

    def deliver(self) -> None:
        """Two ranks have the same part."""
        for squares, done in self.kept:
            done(2 * squares)
        self.kept.clear()

    def close(self, seconds: float) -> None:
        self.deliver()


class Run:
    """A monitor whose norm is put together over ranks."""

    def __init__(self, place: Path, slow: SlowExchange, **changes: Any) -> None:
        self.said: list[tuple[str, str, str | None]] = []
        config = {"format": "csv", "ops": ["norm"], "wg_distribution": True, "targets": {}, **changes}
        self.monitor = Monitor.start(
            ParsedConfig(json.dumps(config)),
            rank=0,
            output_dir=str(place),
            listener=lambda *it: self.said.append(it),
        )
        self.norm = GlobalNorm(self.monitor, lambda: slow)

    def step(self, norm: float) -> None:
        part = StepNorm()
        part.add(norm)
        self.end_step(part)

    def end_step(self, part: StepNorm) -> None:
        assert self.norm.settle(part) is None
        self.monitor.end_step()

    def finish(self) -> tuple[list[float], str]:
        """The norms in `steps.csv`, and the closing account."""
        self.norm.close(1.0)
        [directory, *_] = dict(self.monitor.locations())["csv"]
        report = self.monitor.shutdown()
        with (Path(directory) / "steps.csv").open(encoding="utf-8") as file:
            return [float(row["grad_norm"] or "nan") for row in csv.DictReader(file)], report

    def warnings(self) -> list[tuple[str, str | None]]:
        return [(message, hint) for severity, message, hint in self.said if severity == "warning"]


def test_a_sum_that_comes_ten_steps_late_is_in_its_step(tmp_path: Path) -> None:
    slow = SlowExchange()
    run = Run(tmp_path, slow)
    for step in range(11):
        run.step(1.0 + step)
    slow.deliver()
    norms, report = run.finish()
    assert norms == pytest.approx([math.sqrt(2) * (1 + step) for step in range(11)])
    assert run.warnings() == []
    assert "missing" not in report
    assert run.monitor.counts()["missing_numbers"] == 0


def test_a_sum_that_comes_too_late_is_counted_and_said_once(tmp_path: Path) -> None:
    slow = SlowExchange()
    # Three quarters of the queue are twelve steps: two leave before the sums come.
    run = Run(tmp_path, slow, queue_steps=16)
    for _ in range(14):
        run.step(1.0)
    slow.deliver()
    norms, report = run.finish()
    assert [math.isnan(norm) for norm in norms] == [True] * 2 + [False] * 12
    ((message, hint),) = run.warnings()
    assert "step 0 is delivered without its global gradient norm" in message
    assert hint is not None and "raise `queue_steps`" in hint
    assert "missing: the global gradient norm of 2 steps: " in report
    assert run.monitor.counts()["missing_numbers"] == 2


def test_a_norm_that_is_left_out_on_purpose_is_not_missing_and_one_given_up_is(tmp_path: Path) -> None:
    slow = SlowExchange()
    run = Run(tmp_path, slow)
    partial = StepNorm()
    partial.leave_out()
    run.end_step(partial)
    slow.deliver()
    assert partial.squares == UNKNOWN
    run.step(1.0)
    ((_, done),) = slow.kept
    slow.kept.clear()
    # As the exchange does that has said why.
    done(None)
    norms, report = run.finish()
    assert all(math.isnan(norm) for norm in norms)
    assert run.warnings() == []
    assert "missing: the global gradient norm of 1 step: " in report


def test_a_step_waits_for_no_more_steps_than_the_exchange_has_keys_for(tmp_path: Path) -> None:
    """However long the queue is: the keys of a sum must not be written anew while one waits for it."""
    run = Run(tmp_path, (slow := SlowExchange()), queue_steps=1000)
    for _ in range(exchange.LATEST + 2):
        run.step(1.0)
    slow.deliver()
    norms, report = run.finish()
    assert [math.isnan(norm) for norm in norms] == [True] * 2 + [False] * exchange.LATEST
    assert exchange.RING.size >= 2 * exchange.LATEST
    assert "missing: the global gradient norm of 2 steps: " in report
