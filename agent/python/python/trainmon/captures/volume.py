"""What a step's tensors take on the disk, told before they are written."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Sequence

import torch

from trainmon._trainmon import Capture, CaptureConfig

#: The part of the modules that have been called when the rest of a step is estimated, and how many there must be.
_SAMPLE = 8
_FEWEST_MODULES = 64
#: Smaller steps are told of afterwards.
LARGE_BYTES = 1 << 30
#: What takes less needs no room that is worth a word.
_TOLD_FROM = 1 << 20
_HINT = "`scope`, `list` and `step` choose fewer; `disk_budget_mib` ends a capture in time"


class Volume:
    """Says what a step takes: what is known before the first one, an estimate in it, what it took before the next."""

    def __init__(self, config: CaptureConfig, tell: Callable[[str, str, str | None], None], known: int | None) -> None:
        self._config = config
        self._tell = tell
        #: Bytes of the tensors of the step that was captured last.
        self.of_a_step = known
        self._is_told = config.task != "tensor"
        self._is_least_told = self._is_told or not config.is_whole
        #: Modules of the models, and calls of them in the first step.
        self._modules = 0
        self._calls = 0

    def tell_known(self, capture: Capture) -> None:
        """What a step took, once it is known and before more are written."""
        if self.of_a_step is None:
            return
        capture.expect_bytes(self.of_a_step)
        if not self._is_told:
            self._is_told = self._is_least_told = True
            self._say("the tensors of a step take about", self.of_a_step)

    def tell_least(self, models: Sequence[torch.nn.Module]) -> None:
        """Before the first step: what the parameters of the models and their gradients take by themselves."""
        if self._is_least_told or self.of_a_step is not None or not models:
            return
        self._is_least_told = True
        self._modules = sum(1 for model in models for _ in model.modules())
        self._say("parameters and their gradients alone take, in each step, about", self._least(models))

    def called(self, capture: Capture) -> None:
        """A module is called. After a part of them in the first step, the whole is estimated: what comes after is as
        what was, and the backward pass as much again."""
        if self._is_told or self.of_a_step is not None or self._modules < _FEWEST_MODULES:
            return
        self._calls += 1
        if self._calls * _SAMPLE < self._modules:
            return
        self._modules = 0
        volume = capture.volume()
        if volume is not None:
            passes = 2 if self._config.wants_backward else 1
            whole = volume[0] * _SAMPLE * passes
            capture.expect_bytes(whole)
            if whole >= LARGE_BYTES:
                self._say("by its first modules, the tensors of this step take about", whole)

    def _least(self, models: Sequence[torch.nn.Module]) -> int:
        """A module's parameters are an entry of each of its calls, and arguments of the functions it calls. Gradients
        are what came in there."""
        entries = int(self._config.wants_modules) + int(self._config.wants_functions or self._config.wants_operators)
        seen: dict[int, torch.nn.Parameter] = {id(one): one for model in models for one in model.parameters()}
        total = 0
        for one in seen.values():
            has_gradient = self._config.wants_backward and one.requires_grad
            total += one.numel() * one.element_size() * entries * (2 if has_gradient else 1)
        return total

    def _say(self, what: str, size: int) -> None:
        if size < _TOLD_FROM:
            return
        with contextlib.suppress(OSError):
            free = shutil.disk_usage(_existing(str(self._config.dump_path))).free
            room = f"`{self._config.dump_path}` has room for {_amount(free)}"
            self._tell("warning" if size > free else "info", f"{what} {_amount(size)}; {room}", _HINT)


def _existing(path: str) -> str:
    """The directory, or the one it will be made in."""
    from pathlib import Path

    place = Path(path).absolute()
    return str(next((one for one in (place, *place.parents) if one.exists()), place))


def _amount(size: int) -> str:
    return f"{size / 2**20:.1f} MiB" if size < 1 << 30 else f"{size / 2**30:.1f} GiB"
