"""The line of the training that makes a call (`cc_codeline`, `cc_log_only`). Stacks are read only on request."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FrameType

import torch

from trainmon._trainmon import Monitor
from trainmon.common.places import OURS, directory_of

_TORCH = directory_of(torch.__file__)
#: Paths of code between the training's line and the group: trainmon's own and torch's. Ascend's part of torch is beside
#: it.
BETWEEN = (OURS, _TORCH, f"{_TORCH.removesuffix('/')}_npu/", "<trainmon>")
_STANDARD = (contextlib.__file__,)
#: The maximum depth of a stack that is read.
_DEEPEST = 256


class CollectiveStacksPrinted(Exception):  # noqa: N818 - not an error: what the config asked for is done
    """Ends the training after the stacks of a step's collective operations are written."""

    def __init__(self) -> None:
        super().__init__("exit after first monitor step when cc_log_only is set")


class Callers:
    """Determines the caller of each operation, and whether it is one of the requested callers."""

    def __init__(self, patterns: Sequence[str], *, log_only: bool) -> None:
        """`patterns` are searched in `path[line]<tab>function;path[line]<tab>function;...`, the innermost frame first.
        A pattern that is no regular expression is searched as text."""
        self._patterns = [_compiled(pattern) for pattern in patterns]
        self._log_only = log_only
        self._stacks: dict[str, list[list[str]]] = {}
        self._is_between: dict[CodeType, bool] = {}

    def __call__(self, op: str) -> tuple[str | None, bool]:
        """`(line, is recorded)` of the call in progress."""
        frames = self._frames(sys._getframe(1))
        stack = [f"{code.co_filename}[{line}]\t{code.co_name}" for code, line in frames]
        if self._log_only:
            stacks = self._stacks.setdefault(op, [])
            if stack not in stacks:
                stacks.append(stack)
        text = ";".join(stack)
        is_recorded = not self._patterns or any(pattern.search(text) for pattern in self._patterns)
        if not frames:
            return None, is_recorded
        code, line = frames[0]
        return f"{Path(code.co_filename).name}[{line}]", is_recorded

    @property
    def has_stacks(self) -> bool:
        """Whether stacks are requested and available."""
        return self._log_only and bool(self._stacks)

    def tell(self, monitor: Monitor) -> None:
        """Prints the stacks, on the first rank, as JSON: by operation a list of stacks, the innermost frame first."""
        if monitor.rank == 0:
            print(json.dumps(self._stacks, indent=1), flush=True)  # noqa: T201 - what the config asks for

    def _frames(self, frame: FrameType | None) -> list[tuple[CodeType, int]]:
        found = []
        for _ in range(_DEEPEST):
            if frame is None:
                break
            code = frame.f_code
            if not self._lies_between(code):
                found.append((code, frame.f_lineno))
            frame = frame.f_back
        return found

    def _lies_between(self, code: CodeType) -> bool:
        known = self._is_between.get(code)
        if known is None:
            file = code.co_filename
            known = self._is_between[code] = file.startswith(BETWEEN) or file in _STANDARD
        return known


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error:
        return re.compile(re.escape(pattern))
