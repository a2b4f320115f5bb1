"""The disk space of a step's tensors, estimated before they are written."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Sequence

import torch

from trainmon._trainmon import Capture, CaptureConfig

#: The share of the modules that must have been called before a step is estimated, and their minimum number.
_SAMPLE = 8
_FEWEST_MODULES = 64
#: Smaller steps are reported afterwards.
LARGE_BYTES = 1 << 30
#: Smaller sizes are not reported.
_TOLD_FROM = 1 << 20
_HINT = "choose less with `scope`, `list` or `step`, or limit a capture with `disk_budget_mib`"


class Volume:
    """Reports the size of a step: a lower limit before the first one, an estimate during it, and the actual size before
    the next."""

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
        """Reports the size of a step, once it is known and before more are written."""
        if self.of_a_step is None:
            return
        capture.expect_bytes(self.of_a_step)
        if not self._is_told:
            self._is_told = self._is_least_told = True
            self._say("tensors per step: about", self.of_a_step)

    def tell_least(self, models: Sequence[torch.nn.Module]) -> None:
        """Reports, before the first step, the size of the models' parameters and their gradients."""
        if self._is_least_told or self.of_a_step is not None or not models:
            return
        self._is_least_told = True
        self._modules = sum(1 for model in models for _ in model.modules())
        self._say("parameters and gradients alone, per step: about", self._least(models))

    def called(self, capture: Capture) -> None:
        """Counts a call of a module. After a share of them in the first step, estimates the whole: the rest is like the
        part so far, and the backward pass has the same size again."""
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
                self._say("tensors of this step, estimated from its first modules: about", whole)

    def _least(self, models: Sequence[torch.nn.Module]) -> int:
        """A module's parameters are an entry of each of its calls, and arguments of the functions it calls. Gradients
        are as large as these inputs."""
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
            room = f"{_amount(free)} free at `{self._config.dump_path}`"
            self._tell("warning" if size > free else "info", f"{what} {_amount(size)}; {room}", _HINT)


def _existing(path: str) -> str:
    """The directory, or the existing one in which it will be created."""
    from pathlib import Path

    place = Path(path).absolute()
    return str(next((one for one in (place, *place.parents) if one.exists()), place))


def _amount(size: int) -> str:
    return f"{size / 2**20:.1f} MiB" if size < 1 << 30 else f"{size / 2**30:.1f} GiB"
