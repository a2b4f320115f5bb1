"""A capture: what is put in place when it starts, and taken away when it stops."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from trainmon._trainmon import Capture, CaptureConfig
from trainmon.captures.aten import OperatorMode
from trainmon.captures.collectives import Collectives
from trainmon.captures.custom import CustomFunctions
from trainmon.captures.entry_points import EntryPoints
from trainmon.captures.mode import Mode
from trainmon.captures.modules import ModuleHooks, Pause
from trainmon.captures.optimizers import OptimizerNodes


class CaptureSession:
    """Starts and stops the capture of steps. While it is stopped nothing of it is on the training's path."""

    def __init__(self, config: CaptureConfig, neutral: bool = False) -> None:
        """`neutral`: modules' gradients are caught so that no sum of gradients is added in another order."""
        self.config = config
        self._neutral = neutral
        self.capture = Capture()
        self._process = os.getpid()
        self._entry_points: EntryPoints | None = None
        self._mode: Mode | None = None
        self._operators: OperatorMode | None = None
        self._modules: ModuleHooks | None = None
        self._optimizers = OptimizerNodes(self.capture)
        self._collectives = Collectives(self.capture)
        self.custom = CustomFunctions(self.capture)
        self._single: ModuleHooks | None = None

    def begin(self, step: int, rank: int | None, rows: tuple[int, int, int] | None = None) -> bool:
        """Begins a step's files, if they are not begun. False: it cannot, and the user was told. `rows`: of tensors with so
        many rows only those from the second number up to the third are captured."""
        if self.capture.is_open:
            return True
        try:
            self.capture.begin(self.config, step, rank, tell, rows)
        except ValueError as error:
            tell(f"step {step} is not captured: {error}", None)
            return False
        return True

    def start(self, models: Sequence[torch.nn.Module], is_list: bool) -> None:
        """Captures what is called from now on, in this process."""
        if os.getpid() != self._process or not self.capture.is_open:
            return
        if self.capture.is_on:
            self.stop()
        if self.config.wants_functions:
            self._start_functions()
        if self.config.wants_modules:
            self._modules = self._hooks(self._mode, self._pause if self.config.wants_functions else None)
            self._modules.attach(models, is_list)
        self.capture.switch(True)
        if self.config.wants_operators:
            self._operators = OperatorMode(self.capture)
            self._operators.__enter__()

    def _hooks(self, mode: Mode | None, pause: Pause | None) -> ModuleHooks:
        wants_backward = self.config.wants_backward
        return ModuleHooks(self.capture, mode, wants_backward=wants_backward, neutral=self._neutral, pause=pause)

    def _pause(self) -> Callable[[], None]:
        mode, entry_points = self._mode, self._entry_points
        if mode is None or entry_points is None or not mode.is_on():
            return lambda: None
        mode.pop()
        entry_points.close()

        def go_on() -> None:
            if self.capture.is_on:
                entry_points.open()
                mode.push_if_absent()

        return go_on

    def _start_functions(self) -> None:
        if self._entry_points is None:
            self._entry_points = EntryPoints(self.capture)
        if self._mode is None:
            self._mode = Mode(self.capture)
        self._entry_points.open()
        self._optimizers.attach()
        self._collectives.attach()
        self.custom.attach()
        self.capture.set_mode(self._mode)
        self._mode.start()

    def stop(self) -> None:
        """Captures no more, and takes everything away."""
        if os.getpid() != self._process:
            return
        self.capture.switch(False)
        if self._operators is not None:
            self._operators.__exit__(None, None, None)
            self._operators = None
        for hooks in (self._modules, self._single):
            if hooks is not None:
                hooks.detach()
        self._modules = self._single = None
        self._stop_functions()

    def _stop_functions(self) -> None:
        if self._mode is not None:
            self._mode.stop()
        self.custom.detach()
        self._collectives.detach()
        self._optimizers.detach()
        if self._entry_points is not None:
            self._entry_points.close()
        self.capture.set_mode(None)

    def start_single(self, module: torch.nn.Module, name: str) -> None:
        """Captures this module alone, and no function, until `end_single`."""
        if not self.capture.is_on or self._single is not None or self._modules is not None:
            return
        self._stop_functions()
        self._single = self._hooks(None, None)
        self._single.attach_one(module, f"Module.{name}.{type(module).__name__}")

    def end_single(self) -> None:
        """Functions are captured again."""
        if self._single is None:
            return
        self._single.detach()
        self._single = None
        if self.capture.is_on and self.config.wants_functions:
            self._start_functions()

    def write(self) -> None:
        """Writes the step's files as they are now."""
        if os.getpid() == self._process:
            _told(self.capture.write)

    def finish(self) -> None:
        """Ends the step."""
        if os.getpid() == self._process:
            _told(self.capture.finish)


def _told(act: Any) -> None:
    try:
        act()
    except ValueError as error:
        tell(str(error), "the record file is kept: `trainmon recover` makes the files of it")


def tell(message: str, hint: str | None) -> None:
    """Tells the user."""
    # Nobody may be there to hear it.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"trainmon: {message}" + (f"\n  {hint}\n" if hint else "\n"))
