"""The recipes of docs/plotting.md, run as they stand beside a run."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import ranks

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "plotting.md"
RECIPES = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)

TRAINING = """
import torch, trainmon

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters())
config = {"wg_distribution": True, "mv_distribution": True, "ops": ["min", "max", "mean", "norm", "nans"]}
with trainmon.watch(model, optimizer, config=config) as watch:
    for step in range(20):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8)).square().mean() * (50 if step == 13 else 1)
        loss.backward()
        optimizer.step()
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a run in it, whose gradients are large in step 13."""
    directory = tmp_path_factory.mktemp("plotting")
    (directory / "train.py").write_text(TRAINING)
    ranks.run_alone(directory / "train.py", directory=directory)
    return directory


@pytest.mark.parametrize(
    "recipe", RECIPES, ids=lambda recipe: re.findall(r"import (?:matplotlib|pandas|duckdb)", recipe)[0]
)
def test_a_recipe_runs(recipe: str, place: Path) -> None:
    (library,) = re.findall(r"import (duckdb|pandas)", recipe)
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    before = set(place.iterdir())
    environment = {**os.environ, "MPLCONFIGDIR": str(place / "matplotlib")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", recipe],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for name in re.findall(r'(?:savefig\("|to \')([\w.]+)', recipe):
        file = place / name
        assert file not in before and file.stat().st_size > 500, name
    if "ratio desc" in recipe or "nlargest" in recipe:
        assert "weight" in done.stdout, done.stdout


def test_the_largest_ratio_is_of_the_step_that_was_spoilt(place: Path) -> None:
    pytest.importorskip("duckdb")
    (recipe,) = [recipe for recipe in RECIPES if "ratio desc" in recipe]
    shown = subprocess.run([sys.executable, "-c", recipe], cwd=place, capture_output=True, text=True, check=True).stdout
    steps = re.findall(r"│ +(\d+) │", shown)
    assert steps and set(steps[:4]) == {"13"}, shown
