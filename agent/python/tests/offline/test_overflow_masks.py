"""`trainmon overflow` on captures of healthy models whose masks hold infinities, and of models that are broken: whether
a training is healthy is asked of its loss and gradients, by torch alone."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import trainmon
from trainmon._trainmon import run_program

INFINITE = float("-inf")
LENGTH, WIDTH = 6, 16


def causal() -> torch.Tensor:
    return nn.Transformer.generate_square_subsequent_mask(LENGTH)


class Net(nn.Module):
    """Embedding, attention by one of the functions below, head."""

    def __init__(self, attend: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.embedding, self.qkv, self.head = nn.Embedding(20, WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 20)
        self.encoder = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.0, batch_first=True)
        self.register_buffer("tril", torch.tril(torch.ones(LENGTH, LENGTH)))
        self.attend = attend

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        out: torch.Tensor = self.head(self.attend(self, self.embedding(tokens), mask))
        return out


def scores(net: Net, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    q, k, v = net.qkv(x).chunk(3, -1)
    return q @ k.transpose(-1, -2) / math.sqrt(WIDTH), v


def added(net: Net, x: torch.Tensor, mask: Any) -> torch.Tensor:
    found, v = scores(net, x)
    return torch.softmax(found + mask, -1) @ v


def added_in_place(net: Net, x: torch.Tensor, mask: Any) -> torch.Tensor:
    found, v = scores(net, x)
    found += mask
    return torch.softmax(found, -1) @ v


def made_inside(net: Net, x: torch.Tensor, _mask: Any) -> torch.Tensor:
    found, v = scores(net, x)
    return torch.softmax(found + torch.full((LENGTH, LENGTH), INFINITE).triu(1), -1) @ v


def filled(net: Net, x: torch.Tensor, _mask: Any) -> torch.Tensor:
    found, v = scores(net, x)
    return F.softmax(found.masked_fill(net.tril == 0, INFINITE), dim=-1) @ v


def filled_in_place(net: Net, x: torch.Tensor, _mask: Any) -> torch.Tensor:
    found, v = scores(net, x)
    return F.softmax(found.clone().masked_fill_(net.tril == 0, INFINITE), dim=-1) @ v


def chosen(net: Net, x: torch.Tensor, _mask: Any) -> torch.Tensor:
    found, v = scores(net, x)
    return torch.softmax(torch.where(net.tril > 0, found, INFINITE), -1) @ v


def fused(net: Net, x: torch.Tensor, mask: Any) -> torch.Tensor:
    q, k, v = net.qkv(x).chunk(3, -1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def encoded(net: Net, x: torch.Tensor, mask: Any) -> torch.Tensor:
    found: torch.Tensor = net.encoder(x, src_mask=mask)
    return found


def looked_at(net: Net, x: torch.Tensor, mask: Any) -> torch.Tensor:
    """The mask's least number is infinite, too."""
    return added(net, x, mask) + 0.0 * float(torch.isinf(mask.min()))


HEALTHY = [added, added_in_place, made_inside, filled, filled_in_place, chosen, fused, encoded, looked_at]


def wholly_masked(net: Net, x: torch.Tensor, _mask: Any) -> torch.Tensor:
    found, v = scores(net, x)
    return torch.softmax(found + torch.full((LENGTH, LENGTH), INFINITE), -1) @ v


def overflowing(net: Net, x: torch.Tensor, mask: Any) -> torch.Tensor:
    return added(net, torch.exp(1000 * x.abs() + 1000), mask)


def logarithm(net: Net, x: torch.Tensor, mask: Any) -> torch.Tensor:
    return added(net, x, mask) + torch.log(torch.zeros(WIDTH))


#: The operator that bears it, and what.
BROKEN = {
    wholly_masked: ("Torch.softmax.0.forward", "NaN"),
    overflowing: ("Torch.exp.0.forward", "infinity"),
    logarithm: ("Torch.log.0.forward", "infinity"),
}


def step(tmp_path: Path, net: Net, level: str, loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> bool:
    """Captures a step. Whether torch finds its loss and gradients finite."""
    tokens = torch.arange(2 * LENGTH).view(2, LENGTH)
    with trainmon.capture(net, dump_path=str(tmp_path / "dump"), level=level, quiet=True):
        found = loss(net(tokens, causal()), tokens)
        found.backward()
    gradients = [one.grad for one in net.parameters() if one.grad is not None]
    return all(bool(torch.isfinite(one).all()) for one in [found, *gradients])


def cross_entropy(out: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(out.view(-1, 20), tokens.view(-1))


def overflow(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = run_program(["trainmon", "overflow", str(tmp_path / "dump"), "--json"])
    (only,) = json.loads(capfd.readouterr().out)["steps"]
    return code, only


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize("attend", HEALTHY, ids=lambda one: one.__name__)
def test_an_infinity_that_leads_to_finite_results_is_none(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], attend: Any, level: str
) -> None:
    torch.manual_seed(0)
    assert step(tmp_path, Net(attend), level, cross_entropy), "the model is not healthy"
    code, found = overflow(tmp_path, capfd)
    assert (code, found["born"]) == (0, []), found
    assert not [one for rank in found["ranks"] for one in rank["anomalies"] if one["level"] != "high"], found


@pytest.mark.parametrize("level", ["L1", "mix"])
@pytest.mark.parametrize("attend", BROKEN, ids=lambda one: one.__name__)
def test_the_operator_that_bears_it_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], attend: Any, level: str
) -> None:
    torch.manual_seed(0)
    assert not step(tmp_path, Net(attend), level, cross_entropy), "the model is healthy"
    code, found = overflow(tmp_path, capfd)
    born = [(one["operator"], one["what"], one["arrives"]) for one in found["born"]]
    assert (code, born) == (1, [(*BROKEN[attend], False)]), found
    # The answer names the mask that the operator was given.
    assert (found["born"][0]["given"] is not None) == (attend is wholly_masked)


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_an_infinite_weight_is_named_where_it_arrives(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], level: str
) -> None:
    torch.manual_seed(0)
    net = Net(added)
    with torch.no_grad():
        net.head.bias[3] = math.inf
    assert not step(tmp_path, net, level, cross_entropy)
    code, found = overflow(tmp_path, capfd)
    assert code == 1
    assert found["born"][0]["operator"].startswith(("Functional.linear", "Module.head", "Functional.cross_entropy")), (
        found
    )


def test_an_infinity_that_becomes_a_loss_is_named_where_it_arrived(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)

    def mean(out: torch.Tensor, _tokens: torch.Tensor) -> torch.Tensor:
        return torch.mean(out + torch.full((20,), math.inf))

    assert not step(tmp_path, Net(added), "L1", mean)
    code, found = overflow(tmp_path, capfd)
    assert code == 1 and found["born"][0]["what"] == "infinity", found
