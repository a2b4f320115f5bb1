"""`seed_all`: generators that draw the same, dropout that keeps everything, calls that repeat."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import trainmon
from support.captures import entries
from support.environment import ENVIRONMENT
from trainmon.captures import seeds

SEEDED = """
import json, os, random, sys
import numpy as np, torch
import torch.nn.functional as F
from torch import nn
from trainmon import seed_all

keywords = json.loads(sys.argv[1])

def draw():
    return [
        random.random(), random.sample(range(1000), 4), float(np.random.rand()), np.random.permutation(50).tolist(),
        torch.rand(2).tolist(), torch.randperm(50).tolist(), torch.empty(2).normal_().tolist(),
        nn.Linear(2, 2).weight.tolist(),
    ]

def dropped():
    x, found = torch.ones(4, 8, 16), {}
    for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"):
        shaped = x[None] if name == "dropout3d" else x
        found[name] = not torch.equal(getattr(F, name)(shaped, 0.5, True), shaped)
    module = nn.Dropout(0.5)
    found["module"] = not torch.equal(module(x), x)
    for words in (True, False):
        torch.manual_seed(0)
        attention = nn.MultiheadAttention(16, 2, dropout=0.9, batch_first=True)
        trained = attention(x * torch.arange(8.0)[:, None], x, x, need_weights=words)[0]
        attention.eval()
        expected = attention(x * torch.arange(8.0)[:, None], x, x, need_weights=words)[0]
        found[f"attention {words}"] = not torch.allclose(trained, expected, atol=1e-6)
    for p in (-0.1, 1.5):
        try:
            F.dropout(x, p)
        except ValueError:
            continue
        found[f"refused {p}"] = False
    return found

seed_all(7, **keywords)
first, second = draw(), draw()
seed_all(7, **keywords)
again = draw()
drops = dropped()
seed_all(8, **keywords)
other = draw()
deterministic = torch.are_deterministic_algorithms_enabled()
seed_all(9)
plain = draw()
print(json.dumps({
    "first": first, "second": second, "again": again, "other": other, "plain": plain, "drops": drops,
    "hash": os.environ["PYTHONHASHSEED"],
    "deterministic": deterministic,
}))
"""


def seeded(**keywords: bool) -> dict[str, Any]:
    words = [sys.executable, "-c", SEEDED, json.dumps(keywords)]
    ended = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def alike(one: list[Any], other: list[Any]) -> list[bool]:
    return [a == b for a, b in zip(one, other, strict=True)]


@pytest.mark.parametrize("keywords", [{}, {"mode": True}, {"rm_dropout": True}, {"is_enhanced": True}], ids=str)
def test_a_seed_makes_all_generators_draw_the_same_and_each_keyword_does_what_it_says(
    keywords: dict[str, bool],
) -> None:
    found, again = seeded(**keywords), seeded(**keywords)
    assert found == again, "two runs of the program"
    assert all(alike(found["first"], found["again"]))
    assert not any(alike(found["first"], found["other"])), "another seed"
    assert not any(alike(found["other"], found["plain"])), "nor do calls that repeat keep to an earlier one"
    repeats = alike(found["first"], found["second"])
    # `nn.Linear` draws twice, weight and bias, the first of which is compared: the same function, the same numbers.
    assert all(repeats) if "is_enhanced" in keywords else not any(repeats)
    assert found["deterministic"] is ("mode" in keywords)
    assert found["hash"] == "9"
    drops = found["drops"]
    assert "refused -0.1" not in drops
    assert "refused 1.5" not in drops
    assert len(drops) == 9
    assert set(drops.values()) == {"rm_dropout" not in keywords}, drops


def test_functions_without_dropout_are_captured_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
    for name in (*names, "scaled_dot_product_attention"):
        # Put back by the end of the test.
        monkeypatch.setattr(F, name, getattr(F, name))

    def captured(place: Path) -> dict[str, Any]:
        x = torch.ones(2, 4, 8, requires_grad=True)
        with trainmon.capture(dump_path=str(place), level="L1", risk_level="ALL"):
            for name in names:
                getattr(F, name)(x[None] if name == "dropout3d" else x, 0.5, True)
            torch.nn.Dropout(0.5)(x)
            F.scaled_dot_product_attention(x, x, x, dropout_p=0.5).sum().backward()
        return entries(place)

    plain = captured(tmp_path / "plain")
    seeds.remove_dropout()
    kept = captured(tmp_path / "kept")
    assert [name for name in kept if name.endswith(".forward")] == [name for name in plain if name.endswith(".forward")]
    assert kept["Functional.dropout.1.forward"]["output"][0]["Max"] == 1.0
    assert "Functional.scaled_dot_product_attention.0.backward" in kept


@pytest.mark.parametrize(
    ("keywords", "error", "words"),
    [
        ({"seed": 1.0}, TypeError, "seed: expected an integer, found `float`"),
        ({"seed": True}, TypeError, "seed: expected an integer, found `bool`"),
        ({"seed": -1}, ValueError, "expected 0 to 4294967295, found -1"),
        ({"seed": 2**32}, ValueError, "found 4294967296"),
        ({"mode": 1}, TypeError, "mode: expected a bool, found `int`"),
        ({"rm_dropout": "yes"}, TypeError, "rm_dropout: expected a bool, found `str`"),
        ({"is_enhanced": None}, TypeError, "is_enhanced: expected a bool, found `NoneType`"),
    ],
)
def test_other_arguments_of_seed_all_are_refused_before_anything_is_seeded(
    keywords: dict[str, Any], error: type[Exception], words: str
) -> None:
    before = torch.get_rng_state()
    with pytest.raises(error, match=words):
        trainmon.seed_all(**keywords)
    assert torch.equal(torch.get_rng_state(), before)
