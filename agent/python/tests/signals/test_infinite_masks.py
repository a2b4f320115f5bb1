"""Masks that hold infinities are no alert: a healthy transformer is not asked to stop."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import trainmon
from support import runs
from trainmon._trainmon import run_program

LENGTH, WIDTH = 6, 16


class Net(nn.Module):
    """Torch's encoder, which is given the mask of its attention as an argument."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.0, batch_first=True)
        self.embedding, self.encoder = nn.Embedding(20, WIDTH), nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(WIDTH, 20)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.encoder(self.embedding(tokens), mask=mask))
        return out


def train(tmp_path: Path, mask: torch.Tensor, *, broken_at: int | None = None, scope: str = "global") -> bool:
    """Whether the training was asked to stop."""
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    rule = {"rule_name": "NonFinite", "actions": ["log", "stop"], "on": {"scope": scope, "signal": ["actv", "grad"]}}
    config = {"xy_distribution": True, "wg_distribution": True, "alert": {"rules": [rule]}, "queue_steps": 1024}
    watch = trainmon.watch(net, optimizer, config=config, output_dir=tmp_path)
    # The rules look at a step a little later.
    for step in range(40 if broken_at is None else 1000):
        if step == broken_at:
            with torch.no_grad():
                net.encoder.layers[0].linear1.bias[0] = math.inf
        tokens = torch.randint(1, 20, (2, LENGTH))
        optimizer.zero_grad()
        loss = F.cross_entropy(net(tokens, mask).view(-1, 20), tokens.view(-1))
        loss.backward()
        optimizer.step()
        if watch.stop_requested:
            break
    watch.close()
    return watch.stop_requested


def causal() -> torch.Tensor:
    return nn.Transformer.generate_square_subsequent_mask(LENGTH)


@pytest.mark.parametrize("scope", ["global", "group", "layer", "tensor"])
def test_a_mask_raises_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str], scope: str) -> None:
    assert not train(tmp_path, causal(), scope=scope)
    assert "NonFinite" not in capfd.readouterr().err
    # The mask was measured, and its infinity is in the file.
    rows = runs.rows(runs.run_directory(tmp_path, 0), "actv")
    assert any(math.isinf(float(row["norm"])) for row in rows)
    assert run_program(["trainmon", "report", str(tmp_path)]) in (0, 1)
    said = capfd.readouterr().out
    assert "158 series" in said and "is not finite" not in said


@pytest.mark.parametrize("scope", ["global", "layer", "tensor"])
def test_an_infinity_that_comes_out_is_told_beside_a_mask(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], scope: str
) -> None:
    assert train(tmp_path, causal(), broken_at=20, scope=scope)
    assert "NonFinite" in capfd.readouterr().err


def test_nan_in_a_mask_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    mask = causal()
    mask[0, 1] = math.nan
    assert train(tmp_path, mask, broken_at=2000)
    assert "NonFinite" in capfd.readouterr().err
