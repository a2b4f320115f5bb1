"""What the tests of the first minute share: a training in a directory of its own, and what is said."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from support.first_minute import Said, a_model


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files go where the script runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MONITOR_OUTPUT_DIR", raising=False)
    return tmp_path


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> Said:
    return Said(capfd)


@pytest.fixture
def model() -> nn.Module:
    return a_model()


@pytest.fixture
def optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters())
