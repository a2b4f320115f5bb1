"""The tiny GPT under torch's own ways of training in parallel, and checks of what a watch showed of it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn

from support import runs, tiny
from support.configs import PARAMETERS

CLIP = 0.5
CONFIG: dict[str, Any] = {
    "ops": ["min", "max", "mean", "norm"],
    **PARAMETERS,
    "monitor_mbs_grad": True,
}


@dataclass
class Way:
    """One way of training. `wrap` makes the parallel model of a tiny GPT; gradients are aggregated in every micro-batch
    or, with `defers`, in the last."""

    wrap: Callable[[nn.Module], nn.Module]
    micro_batches: int = 1
    defers: bool = False
    clip: Callable[[nn.Module], Any] = lambda model: nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    reports_norm: bool = True
    """Whether clipping tells the norm of the whole gradient in every version of torch: not with DTensors."""


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return tiny.optimizer_of(model)


@contextlib.contextmanager
def deferred(model: nn.Module, way: Way, micro: int) -> Iterator[None]:
    """Around a micro-batch whose gradients are not aggregated yet."""
    is_last = micro + 1 == way.micro_batches
    if hasattr(model, "set_requires_gradient_sync"):
        model.set_requires_gradient_sync(is_last or not way.defers)
        yield
    elif way.defers and not is_last:
        with model.no_sync():
            yield
    else:
        yield


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    way: Way,
    steps: int,
    first: int = 0,
    loss_of: Any = tiny.loss_of,
) -> list[torch.Tensor]:
    """Trains; gives what must not depend on a watch, bit by bit: losses, gradients, parameters, the random state."""
    seen: list[torch.Tensor] = []
    for step in range(first, first + steps):
        optimizer.zero_grad()
        for micro in range(way.micro_batches):
            with deferred(model, way, micro):
                loss = loss_of(model, step, distributed.get_rank(), micro, way.micro_batches)
                loss.backward()
                seen.append(loss.detach().clone())
        seen.append(local(way.clip(model)).detach().clone())
        seen += [local(one.grad).clone() for one in model.parameters() if one.grad is not None]
        optimizer.step()
    seen += [local(one.detach()).clone() for one in model.parameters()]
    return [*seen, torch.random.get_rng_state()]


def local(tensor: torch.Tensor) -> torch.Tensor:
    return getattr(tensor, "_local_tensor", tensor)


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    """To the bit."""
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def held_by_this_rank(way: Way) -> dict[str, torch.Tensor]:
    """By name: which elements of the flattened parameter this rank holds, found in a wrapped model of numbered ones."""
    numbered = tiny.model()
    names = [name for name, _ in numbered.named_parameters()]
    with torch.no_grad():
        for one in numbered.parameters():
            one.copy_(torch.arange(one.numel(), dtype=torch.float32).view(one.shape))
    wrapped = way.wrap(numbered)
    found = {}
    for wrapped_name, one in wrapped.named_parameters():
        # Wrappers only put something before or into a name: its last parts stay.
        parts = [part for part in wrapped_name.split(".") if part != "module" and not part.startswith("_")]
        assert ".".join(parts) in names, wrapped_name
        found[".".join(parts)] = local(one.detach()).flatten().long()
    return found


def check_rows(
    base: Path,
    way: Way,
    steps: int,
    held: dict[str, torch.Tensor],
    *,
    every_micro_batch: bool = False,
    first: int = 0,
) -> None:
    """Compares the rows of this rank with the reference, each signal of each step from `first` to before `steps`."""
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    run = runs.run_directory(base, rank)
    truth = list(tiny.reference(ranks, steps, micro_batches=way.micro_batches, clip=CLIP))
    kinds = {
        kind: runs.rows(run, kind)
        for kind in ("grad_unreduced", "grad_reduced", "exp_avg", "exp_avg_sq", "param_origin", "param_updated")
    }
    lines = runs.steps(run)
    assert [int(line["step"]) for line in lines] == list(range(first, steps))
    close = 2e-4
    for number, step in list(enumerate(truth))[first:]:
        before = runs.by_name(kinds["grad_unreduced"], number, way.micro_batches - 1)
        assert set(before) == set(step.mean), "all, whole, on every rank"
        if way.defers or way.micro_batches == 1:
            for name, own in step.local[rank].items():
                runs.assert_shows(before[name], own, relative=close, what="before reduction")
        elif number == 0:
            _check_own(before, way, rank, way.micro_batches - 1, close)
        if every_micro_batch and number == 0:
            for micro in range(way.micro_batches - 1):
                _check_own(runs.by_name(kinds["grad_unreduced"], number, micro), way, rank, micro, close)
        earlier = truth[number - 1] if number else None
        shown = {
            "grad_reduced": step.mean,
            "param_origin": step.before,
            "param_updated": step.after,
            "exp_avg": earlier.exp_avg if earlier else {},
            "exp_avg_sq": earlier.exp_avg_sq if earlier else {},
        }
        for kind, expected in shown.items():
            found = runs.by_name(kinds[kind], number)
            parts = {name: one.flatten()[held[name]] for name, one in expected.items()}
            parts = {name: part for name, part in parts.items() if part.numel()}
            assert set(found) == set(parts), (kind, set(found) ^ set(parts))
            for name, part in parts.items():
                runs.assert_shows(found[name], part, relative=close, what=f"{kind} of step {number}")
        check_norm(lines[number - first], step.norm, reported=way.reports_norm)
        # Nobody told it.
        assert abs(float(lines[number - first]["loss"]) / step.loss[rank] - 1) < close


def check_norm(line: runs.Row, norm: float, *, reported: bool) -> None:
    assert abs(float(line["grad_norm"]) / norm - 1) < 1e-4, (line, norm)
    if reported or line["framework_grad_norm"] not in ("", "nan"):
        assert abs(float(line["framework_grad_norm"]) / norm - 1) < 1e-4, (line, norm)


def _check_own(rows: dict[str, runs.Row], way: Way, rank: int, micro: int, close: float) -> None:
    """A first step's micro-batch alone."""
    alone = tiny.model()
    tiny.loss_of(alone, 0, rank, micro, way.micro_batches).backward()
    for name, parameter in alone.named_parameters():
        assert parameter.grad is not None
        runs.assert_shows(rows[name], parameter.grad, relative=close, what=f"micro-batch {micro}")


def collectives() -> int:
    """How many collectives this process has issued, C++'s included: torch's flight recorder."""
    return len(flight_recorder())


def flight_recorder() -> list[dict[str, Any]]:
    """What torch's flight recorder has of every collective of this process, C++'s included, the oldest first."""
    entries: list[dict[str, Any]] = json.loads(torch._C._distributed_c10d._dump_fr_trace_json()).get("entries", [])
    return entries
