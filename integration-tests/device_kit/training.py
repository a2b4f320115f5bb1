"""Whether a watched training is the unwatched one, to the last bit; then what watching waits for and keeps."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from device_kit import memory, small_nets, waiting
from device_kit.report import Report
from device_kit.setting import Setting
from device_kit.watching import watched

#: What a training did and left: losses, gradients, parameters, what the optimizer keeps, random states.
Outcome = dict[str, list[torch.Tensor]]


@dataclass(frozen=True, slots=True)
class Way:
    """How a net is trained."""

    title: str
    optimizer: dict[str, Any]
    autocast: torch.dtype | None = None
    scale: float | None = None
    """The first loss scale. It grows until a step overflows and is left out."""
    dtype: torch.dtype = torch.float32


WAYS = (
    Way("same bits: float32, AdamW as it comes", {}),
    Way("same bits: float32, AdamW foreach", {"foreach": True}),
    Way("same bits: float32, AdamW fused", {"fused": True}),
    Way("same bits: bfloat16, AdamW fused", {"fused": True}, dtype=torch.bfloat16),
    Way("same bits: autocast bfloat16", {}, autocast=torch.bfloat16),
    Way("same bits: autocast float16, GradScaler", {}, autocast=torch.float16, scale=2.0**20),
    Way("same bits: autocast float16, GradScaler, AdamW fused", {"fused": True}, torch.float16, 2.0**20),
)
TITLES = (*(way.title for way in WAYS), *waiting.TITLES, *memory.TITLES)


def run(setting: Setting, report: Report) -> None:
    """A row per way of training, then the others."""
    steady()
    for number, way in enumerate(WAYS):
        with report.guard(way.title):
            _compare(setting, report, way, f"bits_{number}")
    waiting.run(setting, report)
    memory.run(setting, report)


def steady() -> None:
    """Has cuBLAS work in memory of a fixed size, without which it may add up in another order on several streams."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def _compare(setting: Setting, report: Report, way: Way, place: str) -> None:
    expected = train(setting, way)
    complaints: list[str] = []

    @contextlib.contextmanager
    def watching(net: Any, optimizer: Any) -> Any:
        with watched(setting, net, optimizer, place) as found:
            yield
        # Of a step that the scaler leaves out nothing is measured, and that is said.
        complaints.append(found.complaint if way.scale is None else found.failures)

    found = train(setting, way, watching)
    tell(report, way.title, expected, found, complaints[0], lambda: train(setting, way))


def train(setting: Setting, way: Way, watching: Callable[..., Any] | None = None) -> Outcome:
    """Trains some steps; `watching` is the context they are made in."""
    torch.manual_seed(11)
    net = small_nets.gpt(setting).to(way.dtype)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, **way.optimizer)
    # It grows after every three steps, until a float16 overflows again.
    options = {"enabled": way.scale is not None, "growth_interval": 3, "init_scale": way.scale or 1.0}
    scaler = torch.amp.GradScaler(setting.device, **options)
    outcome: Outcome = {"losses": []}
    with contextlib.nullcontext() if watching is None else watching(net, optimizer):
        for number, batch in enumerate(small_nets.batches(setting, setting.size(20, 6))):
            optimizer.zero_grad()
            with torch.autocast(setting.device, dtype=way.autocast, enabled=way.autocast is not None):
                loss = small_nets.loss_of(net, batch)
            scaler.scale(loss).backward()
            if number % 2:
                # Clipped in every second step, for which the loss scale is taken out before the optimizer does it.
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            outcome["losses"].append(loss.detach().clone())
            setting.synchronize()
    if scaler.is_enabled():
        outcome["loss scale"] = [torch.tensor(scaler.get_scale())]
    return {**outcome, **left_by(setting, net, optimizer)}


def left_by(setting: Setting, net: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Outcome:
    """Copies of what a training leaves behind."""
    states = [state for state in optimizer.state.values() if state]
    random = [torch.random.get_rng_state()]
    if setting.is_cuda:
        random.append(torch.cuda.get_rng_state())
    return {
        "parameters": [one.detach().clone() for one in net.parameters()],
        "gradients": [one.grad.clone() for one in net.parameters() if one.grad is not None],
        "moments": [one.clone() for state in states for one in state.values() if isinstance(one, torch.Tensor)],
        "random states": random,
    }


def tell(
    report: Report, title: str, expected: Outcome, found: Outcome, complaint: str, again: Callable[[], Outcome]
) -> None:
    """Whether two outcomes are the same to the bit. Where they are not, `again` makes the unwatched one once more: what
    gives other bits each time says nothing of the watch."""
    different = differences(expected, found)
    count = sum(map(len, expected.values()))
    if different and differences(expected, again()):
        report.skipped(title, f"the training gives other bits each time, also without a watch: {different}")
        return
    said = [*([f"different: {', '.join(different)}"] if different else []), *([complaint] if complaint else [])]
    report.check(title, not said, count, "tensors", "; ".join(said))


def differences(expected: Outcome, found: Outcome) -> list[str]:
    """What differs, by name."""
    wrong = []
    for name, tensors in expected.items():
        pairs = list(itertools.zip_longest(tensors, found[name]))
        unlike = sum(not is_same(one, other) for one, other in pairs)
        if unlike or not pairs:
            wrong.append(f"{unlike} of {len(pairs)} {name}")
    return wrong


def is_same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    """To the last bit, NaN to the same NaN."""
    if one is None or other is None or (one.shape, one.dtype, one.device) != (other.shape, other.dtype, other.device):
        return False
    return torch.equal(*(tensor.detach().contiguous().view(-1).view(torch.uint8) for tensor in (one, other)))
