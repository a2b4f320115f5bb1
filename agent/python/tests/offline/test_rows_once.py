"""Rows that say what another row says are left out of a default run, and read as if they were there."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import trainmon
from support import runs
from support.command import compared
from support.command import trainmon as program

STEPS = 8
#: In these steps gradients are written to before the optimizer, and a parameter after it.
HALVED, CLAMPED = 3, 5


def trained(place: Path, **keys: Any) -> Path:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    with trainmon.watch(net, optimizer, output_dir=str(place), quiet=True, name="run", **keys) as watch:
        for step in range(STEPS):
            optimizer.zero_grad()
            net(torch.randn(4, 8)).square().mean().backward()
            if step == HALVED:
                for one in net.parameters():
                    one.grad.mul_(0.5)  # type: ignore[union-attr]
            optimizer.step()
            if step == CLAMPED:
                net[0].weight.detach().clamp_(-0.1, 0.1)
    return Path(watch.monitor.rank_directory or "")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("rows")
    return trained(place / "once"), trained(place / "twice", repeat_rows=True)


def rows(directory: Path, kind: str) -> set[tuple[str, ...]]:
    (file,) = directory.glob(f"{kind}_0-*.csv")
    with file.open(newline="") as opened:
        return {tuple(row) for row in csv.reader(opened)}


def test_only_what_differs_is_written_and_a_file_says_so(both: tuple[Path, Path]) -> None:
    once, twice = both
    for kind in ("grad_reduced", "param_updated", "exp_avg", "exp_avg_sq"):
        assert rows(once, kind) == rows(twice, kind)
    assert {row for row in rows(twice, "grad_unreduced") if row[2] in ("step", str(HALVED))} == rows(
        once, "grad_unreduced"
    )
    origin = rows(twice, "param_origin")
    is_clamped = {row for row in origin if row[1] == "0.weight" and row[2] == str(CLAMPED + 1)}
    assert is_clamped
    assert {row for row in origin if row[2] in ("step", "0")} | is_clamped == rows(once, "param_origin")
    assert set(json.loads((once / "left_out.json").read_text())) == {"grad_unreduced", "param_origin"}
    assert not (twice / "left_out.json").exists()
    size = [sum(one.stat().st_size for one in directory.glob("*_0-*.csv")) for directory in both]
    assert size[0] < 0.75 * size[1]


def test_every_value_is_compared(both: tuple[Path, Path]) -> None:
    once, twice = both
    for one, other in ((twice, twice), (once, twice), (twice, once)):
        status, answer = compared(one, other)
        assert status == 0, answer
        assert answer["verdict"]["sentence"].startswith("No divergence: all 944 values of steps 0 to 7")


def test_what_is_drawn_is_the_same(both: tuple[Path, Path], tmp_path: Path) -> None:
    """TensorBoard's files have every row of the batches that all views are made of."""
    found = []
    for number, run in enumerate(both):
        place = tmp_path / str(number)
        done = program("convert", str(run), "--to", "tensorboard", "-o", str(place))
        assert done.returncode == 0, done.stderr
        found.append(runs_of_events(place))
    assert found[0] == found[1]
    assert any("grad_unreduced" in tag for tag, _, _ in found[0])


def runs_of_events(place: Path) -> set[tuple[str, int, float]]:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found: set[tuple[str, int, float]] = set()
    for directory in {one.parent for one in place.rglob("events*")}:
        events = accumulator.EventAccumulator(str(directory), size_guidance={"tensors": 0, "scalars": 0})
        events.Reload()
        for tag in events.Tags()["scalars"]:
            if not tag.startswith(("run/", "monitor/")):
                found |= {(f"{directory.name} {tag}", one.step, one.value) for one in events.Scalars(tag)}
    return found


def test_a_golden_run_with_rows_left_out_is_whole(both: tuple[Path, Path], tmp_path: Path) -> None:
    rule = {"rule_name": "Baseline", "golden": str(both[0])}
    run = trained(tmp_path, alert={"rules": [rule], "dump": True}, repeat_rows=True)
    assert not list(run.parent.rglob("anomaly.json"))


def test_a_config_of_ones_own_has_every_row(tmp_path: Path) -> None:
    run = trained(tmp_path, config={"wg_distribution": True, "ops": ["norm"]})
    assert len(rows(run, "grad_unreduced")) == len(rows(run, "grad_reduced")) == 4 * STEPS + 1
    assert runs.rows(run, "grad_unreduced")


def test_a_row_that_is_missing_is_not_made_up(both: tuple[Path, Path], tmp_path: Path) -> None:
    """In its place stands a row without numbers; none reads it as one."""
    for number, run in enumerate(both):
        place = tmp_path / f"run{number}" / "rank_0"
        place.mkdir(parents=True)
        for file in run.iterdir():
            if file.is_file():
                (place / file.name).write_bytes(file.read_bytes())
        (file,) = place.glob("grad_unreduced_0-*.csv")
        lines = file.read_text().splitlines()
        kept = [line for line in lines if not line.startswith("0,0.bias,6,")]
        if number == 0:
            kept.append("0,0.bias,6,nan,nan,nan,nan,nan,nan,nan")
        file.write_text("\n".join(kept) + "\n")
    done = program("compare", str(tmp_path / "run0"), str(tmp_path / "run1"), "--json")
    assert done.returncode == 0, done.stdout
    sentence = json.loads(done.stdout)["verdict"]["sentence"]
    assert sentence.startswith("No divergence: all 939 values of steps 0 to 7"), sentence
