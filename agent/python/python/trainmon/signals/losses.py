"""The loss of a step that the script did not log: the tensor on which it called `backward`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmon.device.measurer import Measurer
from trainmon.measurement.labels import local_part
from trainmon.measurement.unobserved import is_capturing, quietly
from trainmon.signals.gradients import Gradients

if TYPE_CHECKING:
    import torch


class BackwardLoss:
    """Sums, over a step, the values from which this training's backward passes began, without the loss scale.

    A loop that accumulates divides each micro-batch's loss by their number, so the sum is the step's loss; one that
    does not divide has the sum in its gradients too.
    """

    def __init__(self, measurer: Measurer, gradients: Gradients) -> None:
        self._measurer = measurer
        self._gradients = gradients
        self._sum: float | torch.Tensor | None = None
        self._passes_seen = 0

    def went_back(self, loss: Any, is_only_one: Callable[[], bool], *, counts: bool) -> None:
        """Handles a finished backward pass from `loss`. `is_only_one`: whether no other training is watched; else the
        loss is this one's if the pass produced gradients of its parameters. `counts`: whether it belongs to the step in
        progress."""
        seen, self._passes_seen = self._passes_seen, self._gradients.shown
        is_ours = seen != self._passes_seen or (not self._gradients.tells_passes and is_only_one())
        if not (counts and is_ours):
            return
        for one in loss if isinstance(loss, list | tuple) else (loss,):
            self._add(one)

    def _add(self, loss: torch.Tensor) -> None:
        if loss.numel() != 1 or not loss.is_floating_point():
            return
        factor = self._gradients.factor_in_backward()
        if str(loss.dtype) == "torch.float16" and not (isinstance(factor, float) and factor == 1.0):
            # The scaled loss is usually infinite, but its gradient is not.
            return
        own = local_part(loss.detach())
        if self._measurer.is_at_hand(own) and not hasattr(factor, "detach"):
            number: float | torch.Tensor = float(own) * float(factor)
        elif own.is_cuda and is_capturing():
            # A launch would be captured with it.
            return
        else:
            with quietly(own.device.type):
                # A copy: scripts reduce a loss over ranks in place, to print it.
                number = own.reshape(()).double() * factor
        self._sum = number if self._sum is None else self._sum + number

    def take(self) -> float | torch.Tensor | None:
        """The step's loss; None if there was none."""
        total, self._sum = self._sum, None
        return total

    def forget(self) -> None:
        """Discards the losses so far: they belong to no step."""
        self._sum = None
