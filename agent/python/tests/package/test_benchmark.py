"""The benchmark runs, and its contenders train alike. What it measures is no test's business."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from support import ranks

pytest.importorskip("msprobe", reason="the benchmark compares with the real msprobe")

SCRIPT = Path(__file__).parents[2] / "benches/overhead.py"


def test_monitors_are_raced(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = [
        sys.executable,
        str(SCRIPT),
        "--small",
        "--rounds",
        "2",
        "--warm",
        "1",
        "--starts",
        "1",
        "--json",
        str(figures),
    ]
    # The first one is part of the second.
    command += ["--only", "wg+mv+param,xy"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "differ from those without" not in done.stdout, "no contender changes the training"
    races = json.loads(figures.read_text(encoding="utf-8"))
    assert [race["config"] for race in races] == ["wg+mv+param", "xy"]
    for race in races:
        assert race["floor_ms"] > 0
        for key in ("wall_trainmon_ms", "wall_msprobe_ms", "cpu_trainmon_ms", "cpu_msprobe_ms"):
            middle, low, high = race[key]
            assert low <= middle <= high and math.isfinite(high), key


def test_a_monitor_and_wandbs_own_are_raced(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    figures = tmp_path / "figures.json"
    rounds = ["--small", "--rounds", "2", "--warm", "1", "--starts", "1"]
    only = ["--only", "none,trainmon,wandb.watch", "--json", str(figures)]
    command = [sys.executable, str(SCRIPT.with_name("trackers.py")), *rounds, *only]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    raced = json.loads(figures.read_text(encoding="utf-8"))
    assert "2 rounds" in done.stdout
    assert list(raced) == ["wall", "cpu"]
    assert all(list(found) == ["trainmon", "wandb.watch"] for found in raced.values())
    for found in [*raced["wall"].values(), *raced["cpu"].values()]:
        for middle, low, high in (found["added_ms"], found["ratio"]):
            assert low <= middle <= high and math.isfinite(high)


def test_parts_of_a_watch_are_timed(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    said = ranks.run_alone(SCRIPT.with_name("hooks.py"), "--pairs", 4, "--json", figures, directory=tmp_path)
    parts = json.loads(figures.read_text(encoding="utf-8"))
    assert len(parts) == 3 and "warning" not in said, said
    for part in parts:
        low, middle, high = part["added_us"]
        assert low <= middle <= high and part["step_us"] > 0 and part["pairs"] == 4
