"""`trainmon alerts` over the files of a run says what the run itself has written."""

from __future__ import annotations

import json
from pathlib import Path

import torch

import trainmon
from support import runs
from support.command import trainmon as program

STEPS = 220
SPIKE = 150
NAN = 200


def train(directory: Path) -> Path:
    """Trains with a batch that is far off and one that is NaN; the rank's directory."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    with trainmon.watch(model, optimizer, output_dir=directory, queue_steps=2 * STEPS) as watch:
        for step in range(STEPS):
            inputs = torch.randn(32, 8)
            targets = inputs.sum(-1, keepdim=True) * (40.0 if step == SPIKE else 1.0)
            if step == NAN:
                inputs = inputs * float("nan")
            optimizer.zero_grad()
            loss = ((model(inputs) - targets) ** 2).mean()
            loss.backward()
            optimizer.step()
            watch.log(loss=loss.item())
    rank: Path = runs.run_directory(directory, 0)
    return rank


def told(alert: dict[str, object]) -> tuple[object, ...]:
    """An alert without the tensor that moved first: of one step the files have another order."""
    message = str(alert["message"]).split("; moved first")[0]
    return alert["rule"], alert["phase"], alert["step"], message


def test_alerts_over_a_recorded_run_are_those_it_has_written(tmp_path: Path) -> None:
    rank = train(tmp_path / "out")
    lines = [json.loads(line) for line in (rank / "alerts.jsonl").read_text().splitlines()]
    live = [told(line) for line in lines if "rule" in line]
    said = program("alerts", tmp_path / "out", "--json")
    assert said.returncode == 1, said.stderr
    report = json.loads(said.stdout)
    assert {(rule, step) for rule, phase, step, _ in live if phase == "begins"} >= {
        ("Spike", SPIKE),
        ("NonFinite", NAN),
    }
    assert [told(alert) for alert in report["alerts"]] == live
    ends = [line["findings"] for line in lines if "rule" not in line]
    assert [report["findings"]] == ends
