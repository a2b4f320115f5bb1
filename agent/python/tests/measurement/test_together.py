"""Many tensors measured side by side: the same readings as one by one, none lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from trainmon._trainmon import KINDS, Monitor, ParsedConfig

PARAM = KINDS.index("param_origin")
MOMENT = KINDS.index("exp_avg")


def start(path: Path, said: list[Any], **changes: Any) -> Monitor:
    config = {
        "targets": {}, "format": "csv", "ops": ["min", "max", "mean", "norm", "nans", "zeros"],
        "param_distribution": True, "mv_distribution": True, **changes,
    }  # fmt: skip
    return Monitor.start(
        ParsedConfig(json.dumps(config)), rank=0, output_dir=str(path), listener=lambda *it: said.append(it)
    )


def tensors() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    sizes = [(3,), (1025, 1024), (0,), (40, 60), (2048, 700), (1,), (300, 300)]
    made = [torch.randn(size, generator=generator) for size in sizes]
    made[3][2, 2] = float("nan")
    return [*made, made[3].t(), made[4][::3].bfloat16(), made[1].double()]


def test_readings_are_those_of_one_by_one(tmp_path: Path) -> None:
    shown = tensors()
    together, alone = start(tmp_path / "a", []), start(tmp_path / "b", [])
    for monitor in (together, alone):
        for number in range(len(shown)):
            monitor.register(f"tensor{number}", 0)
    together.observe_all([((at, MOMENT if at % 2 else PARAM, 0), tensor) for at, tensor in enumerate(shown)])
    for at, tensor in enumerate(shown):
        alone.observe(at, MOMENT if at % 2 else PARAM, 0, tensor)
    for kind in (PARAM, MOMENT):
        found, expected = together.latest(kind), alone.latest(kind)
        assert len(found) == len(shown) // 2
        # A NaN is no equal of itself; its text is.
        assert repr(found) == repr(expected)
    for monitor in (together, alone):
        monitor.end_step()
        monitor.shutdown()
    assert together.counts() == alone.counts()


def test_what_cannot_be_measured_keeps_nothing_from_the_others(tmp_path: Path) -> None:
    said: list[Any] = []
    monitor = start(tmp_path, said)
    good = torch.ones(5)
    odd = [None, torch.ones(3).to_sparse(), "text", torch.empty(4, device="meta"), torch.ones(2, dtype=torch.complex32)]
    shown: list[Any] = [*odd, good]
    for number in range(len(shown)):
        monitor.register(f"tensor{number}", 0)
    monitor.observe_all([((at, PARAM, 0), tensor) for at, tensor in enumerate(shown)])
    assert [row[0] for row in monitor.latest(PARAM)] == [f"tensor{len(odd)}"]
    monitor.end_step()
    monitor.shutdown()
    counts = monitor.counts()
    assert counts["observed"] == len(shown)
    # None is a row of its own: there was no tensor.
    assert counts["not_sampled"] == len(odd) - 1
    assert len([it for it in said if it[0] == "warning"]) == len(odd) - 1


@pytest.mark.parametrize("changes", [{"start_step": 1}, {"param_distribution": False}], ids=str)
def test_nothing_is_read_that_is_not_asked_for(tmp_path: Path, changes: dict[str, Any]) -> None:
    monitor = start(tmp_path, [], **changes)
    monitor.observe_all([((monitor.register("it", 0), PARAM, 0), torch.ones(5))])
    monitor.observe_all([])
    assert monitor.latest(PARAM) == []
    monitor.shutdown()
