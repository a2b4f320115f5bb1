"""Nothing to configure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import trainmon
from support import runs
from support.first_minute import GRADIENTS, OPS, Said, train


def test_nothing_needs_configuring(model: nn.Module, optimizer: Any, here: Path, said: Said) -> None:
    with trainmon.watch(model, optimizer):
        train(model, optimizer, 3)
    run = runs.run_directory(here / "monitor_output", 0)
    for kind in ("grad_reduced", "param_updated", "exp_avg", "exp_avg_sq"):
        row = runs.by_name(runs.rows(run, kind), 2)["0.weight"]
        assert set(OPS) <= set(row), kind
    # What these would say the others say.
    assert {row["step"] for row in runs.rows(run, "param_origin")} == {"0"}
    assert not list(run.glob("grad_unreduced*"))
    assert "warning" not in said()


@pytest.mark.parametrize("way", ["path", "file", "dict", "text", "commented text", "keys", "keys over a file"])
def test_a_config_is_taken_in_every_form(model: nn.Module, optimizer: Any, here: Path, way: str) -> None:
    text = json.dumps({**GRADIENTS, "start_step": 1})
    (here / "monitor.json").write_text(f"// what is measured\n{text}")
    given: dict[str, dict[str, Any]] = {
        "path": {"config": here / "monitor.json"},
        "file": {"config": "monitor.json"},
        "dict": {"config": {**GRADIENTS, "start_step": 1, "output_dir": here / "elsewhere"}, "output_dir": "out"},
        "text": {"config": text},
        "commented text": {"config": f"// what is measured\n{text}"},
        "keys": {**GRADIENTS, "start_step": 1, "mv_distribution": False, "param_distribution": False},
        "keys over a file": {"config": "monitor.json", "step_interval": 1, "output_dir": "out"},
    }
    with trainmon.watch(model, optimizer, **given[way]):
        train(model, optimizer, 3)
    run = runs.run_directory(here / ("out" if "output_dir" in given[way] else "monitor_output"), 0)
    rows = runs.rows(run, "grad_reduced")
    assert {row["step"] for row in rows} == {"1", "2"}
    assert "norm" in rows[0] and "max" not in rows[0]
    assert not list(run.glob("exp_avg*"))


def test_keys_take_the_place_of_the_configs(model: nn.Module, optimizer: Any, here: Path) -> None:
    config = {**GRADIENTS, "ops": ["min", "max"], "output_dir": str(here / "theirs")}
    with trainmon.watch(model, optimizer, config=config, ops=["norm"], output_dir=here / "ours"):
        train(model, optimizer)
    (row, *_) = runs.rows(runs.run_directory(here / "ours", 0), "grad_reduced")
    assert "norm" in row and "min" not in row
    assert not (here / "theirs").exists()


def test_a_config_that_is_none_is_told_with_what_was_meant(model: nn.Module, optimizer: Any, here: Path) -> None:
    (here / "monitor.json").write_text("{}")
    with pytest.raises(trainmon.ConfigError, match=r"`monitr.json`.*\n.*did you mean `monitor.json`\?"):
        trainmon.watch(model, optimizer, config="monitr.json")
    with pytest.raises(trainmon.ConfigError, match=r"cannot read the config file `wg_distribution`(.|\n)*hint: check"):
        trainmon.watch(model, optimizer, config="wg_distribution")
    with pytest.raises(trainmon.ConfigError, match="cannot read the config file"):
        trainmon.watch(model, optimizer, config="x" * 10_000)
    with pytest.raises(trainmon.ConfigError, match="null"):
        trainmon.watch(model, optimizer, config="a\0b")
    with pytest.raises(TypeError, match="expected a file, the JSON text of one, a dict or None, found list"):
        trainmon.watch(model, optimizer, config=["wg_distribution"])  # type: ignore[arg-type]
    with pytest.raises(trainmon.ConfigError, match="JSON cannot represent a set"):
        trainmon.watch(model, optimizer, ops={"norm"})
    with pytest.raises(trainmon.ConfigError, match=r"^config:1:3: key `wg`|^config:1:\d+: missing colon"):
        trainmon.watch(model, optimizer, config='{"wg"}')


@pytest.mark.parametrize(
    ("key", "answer"),
    [
        ("wg_distributon", "unknown argument `wg_distributon`; did you mean `wg_distribution`?"),
        ("optimiser", "unknown argument `optimiser`; did you mean `optimizer`?"),
        ("grad_acc_step", "did you mean `grad_acc_steps`?"),
        ("colour", "unknown argument `colour`\nhint: pass one of its own arguments or a key of a config file"),
    ],
)
def test_an_unknown_keyword_is_answered_with_the_nearest(
    model: nn.Module, optimizer: Any, here: Path, key: str, answer: str
) -> None:
    with pytest.raises(TypeError) as raised:
        trainmon.watch(model, optimizer, **{key: True})
    assert answer in str(raised.value)
    assert not (here / "monitor_output").exists()


def test_a_wrong_value_of_a_keyword_is_told_by_its_name(model: nn.Module, optimizer: Any) -> None:
    with pytest.raises(trainmon.ConfigError) as raised:
        trainmon.watch(model, optimizer, ops=["nrm"], config=GRADIENTS)
    assert str(raised.value).startswith("keyword arguments: key `ops[0]`: "), raised.value
    assert "did you mean `norm`?" in str(raised.value)
