"""Custom scalars: numbers that the script logs under its own names, besides loss and learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from trainmon.common.kinds import Kind
from trainmon.device.measurer import Measurer
from trainmon.measurement.labels import Label, local_part

if TYPE_CHECKING:
    import torch

#: The number of names that cause a warning; a script may log any number of them.
_MOST_TOLD = 32
#: The number of names in one message.
_MOST_NAMED = 8


class Scalars:
    """Keeps the logged numbers of the step in progress, and records them at its end: the last value of a name
    counts."""

    def __init__(self, measurer: Measurer) -> None:
        self._measurer = measurer
        self._monitor = measurer.monitor
        self._told: dict[str, float | torch.Tensor] = {}
        self._warned: set[str] = set()

    def numbers(self, values: Any, named: Mapping[str, Any]) -> dict[str, float | torch.Tensor]:
        """The values that are numbers, as tensors if they are on a device. Others cause a warning, except None, which
        is ignored. Keyword arguments override the mapping."""
        return dict(self._numbers(values, named))

    def tell(self, numbers: Mapping[str, float | torch.Tensor]) -> None:
        """Adds numbers of the step in progress."""
        for name, number in numbers.items():
            self._told[name] = number if isinstance(number, float) else _copy(number)

    def forget(self) -> None:
        """Discards the numbers of a skipped step."""
        self._told.clear()

    def close(self) -> None:
        """Reports numbers without a step."""
        if self._told:
            names = ", ".join(f"`{name}`" for name in list(self._told)[:_MOST_NAMED])
            self._told.clear()
            hint = "log a step's numbers before its optimizer step"
            self._monitor.say("warning", f"log: called after the last step, so not written: {names}", hint)

    def end_step(self) -> None:
        """Records the numbers; pending values of a device follow the step."""
        for name, number in self._told.items():
            if isinstance(number, float):
                self._monitor.scalar(name, number)
                continue
            identity = self._monitor.scalar_id(name)
            if identity is not None:
                self._measurer.queue.enqueue_values(Label(identity, Kind.SCALAR), (number,))

    def _numbers(self, values: Any, named: Mapping[str, Any]) -> Iterator[tuple[str, float | torch.Tensor]]:
        if values is not None and not isinstance(values, Mapping):
            self._warn("values", f"expected a mapping of names to numbers, found {type(values).__name__}")
            values = None
        for name, value in (*(values or {}).items(), *named.items()):
            if value is None:
                continue
            if not isinstance(name, str):
                self._warn(repr(name), f"expected a text as name, found {type(name).__name__}")
                continue
            number = self._number(value)
            if number is None:
                self._warn(name, f"expected one number as {name}, found {_described(value)}")
            else:
                yield name, number

    def _number(self, value: Any) -> float | torch.Tensor | None:
        """The number; None if it is none."""
        if isinstance(value, float):
            return float(value)
        if isinstance(value, str | bytes | bytearray):
            return None
        try:
            if not hasattr(value, "numel"):
                # A number, possibly numpy's.
                return None if getattr(value, "ndim", 0) else float(value)
            value = local_part(value.detach())
            if value.numel() != 1 or value.is_complex() or value.is_meta:
                return None
            # Torch may write the next number into the same tensor.
            return float(value) if self._measurer.is_at_hand(value) else value
        except Exception:  # any object may be passed, and reading its value may do anything
            return None

    def _warn(self, name: str, why: str) -> None:
        if name not in self._warned and len(self._warned) < _MOST_TOLD:
            self._warned.add(name)
            self._monitor.say("warning", f"log: {why}; it is ignored", "log(loss=loss, accuracy=0.9)")


def _copy(number: torch.Tensor) -> torch.Tensor:
    """The current value: the script may continue to use the tensor. Nothing waits for it."""
    import torch

    from trainmon.measurement.unobserved import quietly

    with quietly(number.device.type):
        return number.reshape(()).to(torch.float64, copy=True)


def _described(value: Any) -> str:
    try:
        if hasattr(value, "numel"):
            numel = value.numel()
            return f"{numel}" if numel != 1 else f"a tensor of {value.dtype} on {value.device}"
        shape = getattr(value, "shape", None)
        return f"{math.prod(shape)}" if isinstance(shape, tuple) and shape else type(value).__name__
    except Exception:  # as above
        return type(value).__name__
