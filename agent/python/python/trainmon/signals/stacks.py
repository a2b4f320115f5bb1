"""`stack_info`: the call stack of each module, recorded in the first measured step."""

from __future__ import annotations

import csv
import sys
import traceback
from collections.abc import Sequence
from functools import partial
from types import FrameType
from typing import Any, TextIO

import torch
from torch.utils.hooks import RemovableHandle

from trainmon._trainmon import Monitor
from trainmon.common.guard import Guard
from trainmon.common.output_paths import run_directory, write_whole
from trainmon.common.places import OURS
from trainmon.common.settings import Settings
from trainmon.hooks.torch_hooks import Hook, in_backward
from trainmon.signals.eager_modules import eager_modules


class Stacks:
    """Records the stack of every module's first call and writes `stack_info.csv` into the run directory.

    As in msprobe a stack begins at the innermost frame, with torch's own; trainmon's frames are omitted.
    """

    def __init__(self, monitor: Monitor, guard: Guard, settings: Settings) -> None:
        self._monitor = monitor
        self._guard = guard
        self._settings = settings
        self._is_asked_for = settings.stack_info
        self._found: dict[str, str] = {}
        self._handles: list[RemovableHandle] = []

    def attach(self, models: Sequence[torch.nn.Module]) -> None:
        """Hooks every module, if the config requests it."""
        if not self._is_asked_for:
            return
        for vpp_stage, model in enumerate(models):
            for _, name, module in eager_modules(model, self._monitor, self._settings):
                whole = f"{vpp_stage}:{name}"
                called = Hook(self._guard.at("stack_info", whole, partial(self._called, whole)))
                self._handles.append(torch.nn.Module.register_forward_hook(module, called))

    def _called(self, name: str, module: torch.nn.Module, _inputs: Any, _output: Any) -> None:
        if name not in self._found and module.training and self._monitor.collecting and not in_backward():
            self._found[name] = stack_from(sys._getframe(1))

    def end_step(self) -> None:
        """Writes the file at the end of the first measured step, and removes the hooks."""
        if not self._found:
            return
        self.detach()
        found, self._found = self._found, {}
        directory = run_directory(self._monitor)
        if directory is None:
            self._monitor.say("warning", "`stack_info`: no CSV output is configured, so its file cannot be written")
            return

        def write(opened: TextIO) -> None:
            rows = csv.writer(opened, lineterminator="\n")
            rows.writerow(("module_name", "stack_info"))
            rows.writerows(found.items())

        write_whole(directory / "stack_info.csv", write)

    def detach(self) -> None:
        """Removes the hooks."""
        while self._handles:
            self._handles.pop().remove()


def stack_from(frame: FrameType) -> str:
    """The frames from this one outwards, each as `File <path>, line <line>, in <function>, ` and the line of code."""
    summary = traceback.StackSummary.extract(traceback.walk_stack(frame))
    theirs = (one for one in summary if not one.filename.startswith(OURS))
    return "".join(f"File {one.filename}, line {one.lineno}, in {one.name}, \n {one.line} \n" for one in theirs)
