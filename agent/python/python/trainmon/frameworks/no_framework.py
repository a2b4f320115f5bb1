"""Where a framework cannot be read: nothing is measured, nothing is touched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainmon.frameworks.base import Framework, GradientSink
from trainmon.measuring.parameters import Parameter

if TYPE_CHECKING:
    import torch


class Nothing(Framework):
    """Takes the place of a framework whose attaching failed."""

    name = "nothing"

    @classmethod
    def claims(cls, models: Sequence[torch.nn.Module], optimizer: Any) -> bool:
        return False

    def named_parameters(self) -> Iterable[tuple[int, str, torch.Tensor]]:
        return ()

    def attach_gradients(self, parameters: Sequence[Parameter], sink: GradientSink) -> None:
        return

    def attach_step(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        return

    def reduced(self, parameter: Parameter) -> torch.Tensor | None:
        return None

    def moments(self, parameter: Parameter) -> Mapping[str, torch.Tensor]:
        return {}
