"""Level-2 features: their numbers against torch's own, their rows, and that the training does not notice."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from support import runs, tiny
from trainmon import Watch
from trainmon._trainmon import Monitor
from trainmon.signals.features import numbers
from trainmon.signals.features.watched import LinearRank, weight_name
from trainmon.watches import startup

GENERATOR = torch.Generator().manual_seed(11)


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=GENERATOR).to(dtype)


# The numbers.


def reference_attention(q: torch.Tensor, k: torch.Tensor) -> tuple[float, float]:
    """With the whole matrix, in float64."""
    scores = q.double() @ k.double().T / math.sqrt(q.shape[1])
    scores[torch.ones_like(scores).triu(1) > 0] = -math.inf
    weights = scores.softmax(1)
    entropy = torch.special.entr(weights).sum(1).mean()
    return float(entropy), float(weights.amax(1).mean())


@pytest.mark.parametrize("order", ["s,b,h,d", "b,s,h,d", "s, b, h,  d"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_is_that_of_the_first_head(order: str, dtype: torch.dtype) -> None:
    shape = (33, 2, 3, 16) if order.startswith("s") else (2, 33, 3, 16)
    q, k = 3 * random(*shape, dtype=dtype), random(*shape, dtype=dtype)
    one = (slice(None), 0, 0) if order.startswith("s") else (0, slice(None), 0)
    entropy, softmax_max = numbers.attention(q, k, order)
    expected = reference_attention(q[one], k[one])
    assert (float(entropy), float(softmax_max)) == pytest.approx(expected, rel=1e-5)


def test_attention_in_rows_is_that_of_the_whole() -> None:
    q, k = random(50, 8), random(50, 8)
    entropy, softmax_max = numbers.entropy_of_scores(q / math.sqrt(8), k, largest=120)
    assert (float(entropy), float(softmax_max)) == pytest.approx(reference_attention(q, k), rel=1e-5)


def test_attention_of_known_scores() -> None:
    scores = torch.tensor([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]])
    entropy, softmax_max = numbers.entropy_of_scores(scores, torch.eye(3))
    assert float(entropy) == pytest.approx(0.4715, abs=1e-3)
    assert float(softmax_max) == pytest.approx(0.7988, abs=1e-3)


def test_attention_never_holds_the_matrix_of_scores() -> None:
    largest = 0

    class Sizes(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal largest
            found = func(*args, **(kwargs or {}))
            largest = max(largest, *(one.numel() for one in (found,) if isinstance(one, torch.Tensor)), 0)
            return found

    q, k = random(300, 4), random(300, 4)
    with Sizes():
        numbers.entropy_of_scores(q, k, largest=3000)
    assert largest <= 3000


def rank_of(weight: torch.Tensor) -> tuple[float, float]:
    holder = nn.Linear(1, 1)
    holder.weight = nn.Parameter(weight, requires_grad=False)
    rank, norm = LinearRank("a")(holder, (), None)
    return float(rank), float(norm)


@pytest.mark.parametrize("shape", [(64, 64), (10, 200), (200, 10), (1, 7), (7, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_largest_singular_value_is_torchs(shape: tuple[int, int], dtype: torch.dtype) -> None:
    weight = random(*shape, dtype=dtype)
    rank, norm = rank_of(weight)
    expected = float(torch.linalg.matrix_norm(weight.double(), ord=2))
    assert norm == pytest.approx(expected, rel=5e-3)
    assert norm <= expected * (1 + 1e-6)
    assert rank * norm == pytest.approx(float(weight.double().norm()), rel=1e-6)


def test_known_singular_values() -> None:
    assert rank_of(torch.diag(torch.tensor([3.0, 2.0, 1.0])))[1] == pytest.approx(3.0, rel=1e-6)
    assert rank_of(torch.eye(5)) == pytest.approx((math.sqrt(5), 1.0), rel=1e-6)
    assert rank_of(torch.zeros(4, 6)) == (0.0, 0.0)
    for scale in (1e-30, 1e30):
        assert rank_of(scale * torch.eye(3))[1] == pytest.approx(scale, rel=1e-5), "squares leave float32"


def test_a_vector_that_is_known_brings_the_value_closer() -> None:
    weight, holder = random(256, 256), nn.Linear(1, 1)
    holder.weight = nn.Parameter(weight, requires_grad=False)
    measure = LinearRank("a")
    found = [float(measure(holder, (), None)[1]) for _ in range(40)]
    assert found[-1] > found[0]
    assert found[-1] == pytest.approx(float(torch.linalg.matrix_norm(weight, ord=2)), rel=1e-4)


def test_a_matrix_in_pieces_has_the_values_of_the_whole() -> None:
    weight, start = random(40, 30), torch.ones(30)
    whole, pieces = (numbers.spectral(weight, start, 200, largest) for largest in (10**6, 70))
    assert [float(one) for one in pieces[:2]] == pytest.approx([float(one) for one in whole[:2]], rel=1e-5)


@pytest.mark.parametrize("shape", [(8, 64), (64, 8), (2, 5), (6, 6)])
def test_similarity_is_the_mean_cosine_of_all_pairs(shape: tuple[int, int]) -> None:
    weight = random(*shape) + 0.3
    experts = weight.double() if shape[0] < shape[1] else weight.double().T
    pairs = [
        float(nn.functional.cosine_similarity(experts[i], experts[j], dim=0))
        for i in range(len(experts))
        for j in range(i)
    ]
    assert float(numbers.similarity(weight)) == pytest.approx(sum(pairs) / len(pairs), rel=1e-9)


def test_one_expert_is_similar_to_none() -> None:
    assert float(numbers.similarity(random(1, 9))) == 0.0


@pytest.mark.parametrize("shape", [(17, 8), (3, 5, 8)])
def test_token_entropy(shape: tuple[int, ...]) -> None:
    logits = 3 * random(*shape)
    expected = float(torch.special.entr(logits.double().softmax(-1)).sum(-1).mean())
    assert float(numbers.token_entropy(logits)) == pytest.approx(expected, rel=1e-6)
    assert float(numbers.token_entropy(logits, largest=20)) == pytest.approx(expected, rel=1e-6)
    certain = torch.tensor([[0.0, -math.inf, -math.inf]])
    assert float(numbers.token_entropy(certain)) == 0.0


def test_which_weight_is_taken() -> None:
    class Router(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.wg = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3, 4))

    class VocabParallel(nn.Linear):
        vocab_start_index = 0

    assert weight_name(nn.Linear(2, 3)) == "weight"
    assert weight_name(Router()) == "wg"
    for module in (nn.Embedding(3, 4), VocabParallel(2, 3), nn.LayerNorm(4), nn.Conv1d(1, 1, 1), nn.ReLU()):
        assert weight_name(module) is None, module


# The rows.


class Attention(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return q * k


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.core = Attention()
        self.router = nn.Linear(8, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.inner(x)
        heads = hidden.view(6, 2, 2, 4)
        return self.router(self.core(heads, heads + 1).reshape(6, 2, 8))


def start(tmp_path: Path, heard: list[str], features: dict[str, list[str]], **config: Any) -> Monitor:
    chosen = {"targets": {}, "ops": ["norm"], "recording_l2_features": True, "l2_targets": features, "ndigits": 17}
    return startup.start_monitor(
        {**chosen, **config},
        output_dir=str(tmp_path),
        rank=0,
        listener=lambda severity, message, hint: None if message.startswith(FRAME) else heard.append(message),
    )


#: What every watch says at its beginning and its end.
FRAME = ("measures ", "ended before step ")

FOUR = {
    "attention_hook": ["0:core"],
    "linear_hook": [],
    "moe_router_weight_hook": ["router"],
    "moe_router_logit_hook": ["0:router"],
}


@pytest.mark.parametrize("device_only", [False, True], ids=["host", "device"])
def test_rows_of_every_feature(tmp_path: Path, device_only: bool) -> None:
    heard: list[str] = []
    monitor = start(tmp_path, heard, FOUR)
    torch.manual_seed(0)
    net = Model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    entropies, weights = [], []
    with Watch(net, optimizer, monitor, grad_acc_steps=2, device_only=device_only):
        for _ in range(2):
            weights.append(net.router.weight.detach().clone())
            for _ in range(2):
                logits = net(torch.randn(6, 2, 8))
                entropies.append(float(torch.special.entr(logits.detach().double().softmax(-1)).sum(-1).mean()))
                logits.square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert heard == []
    directory = runs.run_directory(tmp_path, 0)
    logit = runs.rows(directory, "moe_router_logit_hook")
    assert [(row["name"], row["step"], row["micro_step"]) for row in logit] == [
        ("router.moe_router", step, micro) for step in "01" for micro in "01"
    ]
    assert [float(row["per_token_expert_entropy"]) for row in logit] == pytest.approx(entropies, rel=1e-6)
    attention = runs.rows(directory, "attention_hook")
    assert [(row["name"], row["step"], row["micro_step"]) for row in attention] == [
        ("core.attention", step, micro) for step in "01" for micro in "01"
    ]
    assert all(0 < float(row["softmax_max"]) <= 1 and float(row["entropy"]) > 0 for row in attention)
    linear = runs.rows(directory, "linear_hook")
    assert [(row["name"], row["step"]) for row in linear] == [
        (name, step) for step in "01" for name in ("inner.linear", "router.linear")
    ]
    for row, weight in zip(linear[1::2], weights, strict=True):
        expected = float(torch.linalg.matrix_norm(weight, ord=2))
        assert float(row["kernel_norm"]) == pytest.approx(expected, rel=1e-3)
    similarity = runs.rows(directory, "moe_router_weight_hook")
    assert [row["step"] for row in similarity] == ["0", "1"]
    for row, weight in zip(similarity, weights, strict=True):
        expected = float(numbers.similarity(weight))
        assert float(row["router_weight_similarity"]) == pytest.approx(expected, rel=1e-9)


def test_what_does_not_fit_is_counted_and_said(tmp_path: Path) -> None:
    heard: list[str] = []
    monitor = start(tmp_path, heard, {"attention_hook": ["inner", "nowhere"], "moe_router_weight_hook": ["core"]})
    net = Model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with Watch(net, optimizer, monitor):
        net(torch.randn(6, 2, 8)).sum().backward()
        optimizer.step()
    assert monitor.counts()["not_sampled"] == 2
    for word in ("nowhere", "queries and keys", "no matrix"):
        assert any(word in message for message in heard), (word, heard)


def test_evaluation_and_recomputation_are_left_out(tmp_path: Path) -> None:
    monitor = start(tmp_path, [], {"moe_router_logit_hook": ["router"]})
    net = Model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with Watch(net, optimizer, monitor):
        net.eval()
        net(torch.randn(6, 2, 8))
        net.train()
        checkpoint(net, torch.randn(6, 2, 8, requires_grad=True), use_reentrant=False).sum().backward()
        optimizer.step()
    rows = runs.rows(runs.run_directory(tmp_path, 0), "moe_router_logit_hook")
    assert [(row["step"], row["micro_step"]) for row in rows] == [("0", "0")]


@pytest.mark.parametrize("device_only", [False, True], ids=["host", "device"])
def test_the_training_does_not_notice(tmp_path: Path, device_only: bool) -> None:
    def train(watch: bool) -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(3)
        net = Model()
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        monitor = start(tmp_path, [], FOUR) if watch else None
        watched = Watch(net, optimizer, monitor, device_only=device_only) if monitor is not None else None
        for _ in range(20):
            optimizer.zero_grad()
            nn.functional.dropout(net(torch.randn(6, 2, 8)), 0.2).square().mean().backward()
            optimizer.step()
        if watched is not None:
            watched.close()
        return torch.cat([one.detach().reshape(-1) for one in net.parameters()]), torch.get_rng_state()

    plain, monitored = train(watch=False), train(watch=True)
    assert plain[0].equal(monitored[0])
    assert plain[1].equal(monitored[1])
    assert runs.rows(runs.run_directory(tmp_path, 0), "linear_hook")


def test_a_feature_that_fails_everywhere_says_so_once_and_names_the_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    monitor = start(tmp_path, heard, {"linear_hook": []})
    monkeypatch.setattr(numbers, "spectral", lambda *_: 1 / 0)
    net, optimizer = tiny.training()
    with Watch(net, optimizer, monitor):
        for step in range(2):
            tiny.loss_of(net, step, 0).backward()
            optimizer.step()
    first, others = [message for message in heard if "ZeroDivisionError" in message]
    assert "failed at `layers.0.qkv.linear`, which is skipped from now on" in first
    assert "more objects for the same reason" in others and "layers.0.out.linear" in others


# msprobe's recorded answers.

GOLDEN = Path(os.environ.get("TRAINMON_GOLDEN", Path(__file__).resolve().parents[4].parent / "shared" / "golden"))
needs_golden = pytest.mark.skipif(not GOLDEN.is_dir(), reason=f"no golden files in {GOLDEN} (TRAINMON_GOLDEN)")


@needs_golden
def test_linear_features_of_the_golden_net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """msprobe takes three iterations from a random vector: its sigma is too low and its stable rank too high, but their
    product is the Frobenius norm whatever the iteration gave."""
    monkeypatch.syspath_prepend(str(GOLDEN / "tools"))
    from nets import NETS

    case = GOLDEN / "01_monitor" / "v1_block_l2"
    facts = json.loads((case / "case.json").read_text())
    torch.manual_seed(facts["seed"])
    net = NETS[facts["net"]]()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(facts["seed"] + 1)
    monitor = startup.start_monitor(facts["config"], output_dir=str(tmp_path), rank=0)
    with Watch(net, optimizer, monitor):
        for _ in range(facts["steps"]):
            optimizer.zero_grad()
            inputs, targets = net.batch(generator)
            net.loss(net(*inputs), targets).backward()
            optimizer.step()
    ours = runs.rows(runs.run_directory(tmp_path, 0), "linear_hook")
    theirs = runs.rows(next((case / "msprobe_out").iterdir()), "linear_hook")
    assert [list(row) for row in ours] == [list(row) for row in theirs]
    for mine, golden in zip(ours, theirs, strict=True):
        places = ([row[key] for key in ("vpp_stage", "name", "step")] for row in (mine, golden))
        assert next(places) == next(places)
        product, expected = (float(row["sr"]) * float(row["kernel_norm"]) for row in (mine, golden))
        assert product == pytest.approx(expected, rel=2e-4)
        assert float(mine["kernel_norm"]) >= float(golden["kernel_norm"]) * (1 - 2e-4)
        assert float(mine["kernel_norm"]) == pytest.approx(float(golden["kernel_norm"]), rel=0.25)
