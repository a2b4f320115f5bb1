"""Whether two trainings are the same to the last bit."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from support.waiting import eventually

#: What a training did and left, by what it is: losses, gradients, parameters, moments, the random state.
Outcome = Mapping[str, Sequence[Any]]

#: How many steps are compared.
STEPS = 20


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal to the last bit, NaN to the same NaN."""
    if isinstance(left, torch.Tensor):
        if (left.shape, left.dtype) != (right.shape, right.dtype):
            return False
        return torch.equal(bits(left), bits(right))
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().view(-1).view(torch.uint8)


def assert_same(expected: Outcome, found: Outcome, what: str) -> None:
    """Fails with what differs; nothing of an outcome may be empty, or nothing would be compared."""
    assert expected.keys() == found.keys(), what
    empty = [name for name, values in expected.items() if not values]
    assert not empty, f"{what}: there is no {empty}"
    different = [name for name, values in expected.items() if not same(list(values), list(found[name]))]
    assert not different, f"{what}: watching changed {different}"


def local(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of this rank's part."""
    return getattr(tensor, "_local_tensor", tensor).detach().clone()


def gradients(parameters: Any) -> list[torch.Tensor]:
    """Copies of the gradients that are there, this rank's parts."""
    return [local(one.grad) for one in parameters if one.grad is not None]


def optimizer_state(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Copies of everything an optimizer keeps: moments, step counters, and what it steps (master weights)."""
    kept = []
    for stepped, state in optimizer.state.items():
        kept.append(local(stepped))
        kept += [local(one) for one in state.values() if isinstance(one, torch.Tensor)]
    return kept


def await_norm(watch: Any, seconds: float = 8.0) -> None:
    """Waits for the sum of the step just made. A sum that is overtaken by many steps is given up, and steps this small
    overtake it on a busy machine."""
    # Private: nobody but the norm is to use its exchange. One whose sum is given up may be under way for longer.
    exchange = watch.norm._exchange
    with contextlib.suppress(AssertionError):
        eventually(lambda: getattr(exchange, "is_idle", True), within=seconds, pause=0.001)
