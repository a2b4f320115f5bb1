"""The loss of a step that nobody told: what the script called `backward` on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmon.device.measurer import Measurer
from trainmon.measuring.labels import local_part
from trainmon.measuring.unobserved import is_capturing, quietly
from trainmon.signals.gradients import Gradients

if TYPE_CHECKING:
    import torch


class BackwardLoss:
    """Adds up, over a step, the numbers that this training's backward passes began from, without the loss scale.

    A loop that accumulates divides each micro-batch's loss by their number, so the sum is the step's loss; one that
    does not divide has the sum in its gradients too.
    """

    def __init__(self, measurer: Measurer, gradients: Gradients) -> None:
        self._measurer = measurer
        self._gradients = gradients
        self._sum: float | torch.Tensor | None = None
        self._passes_seen = 0

    def went_back(self, loss: Any, is_only_one: Callable[[], bool], *, counts: bool) -> None:
        """A backward pass began from `loss` and is over. `is_only_one`: whether no other training is watched; else it
        is this one's if it showed gradients of its parameters. `counts`: whether it is of the step in progress."""
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
            # Scaled it is infinite, as a rule; only its gradient is not.
            return
        own = local_part(loss.detach())
        if self._measurer.is_at_hand(own) and not hasattr(factor, "detach"):
            number: float | torch.Tensor = float(own) * float(factor)
        elif own.is_cuda and is_capturing():
            # What we launched would be captured with it.
            return
        else:
            with quietly(own.device.type):
                # A copy: scripts reduce a loss over ranks in place, to print it.
                number = own.reshape(()).double() * factor
        self._sum = number if self._sum is None else self._sum + number

    def take(self) -> float | torch.Tensor | None:
        """The step's; None if there was none."""
        total, self._sum = self._sum, None
        return total

    def forget(self) -> None:
        """What came so far is of no step."""
        self._sum = None
