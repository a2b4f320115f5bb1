"""`token_range`: only some of the model's calls are captured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from trainmon.captures.session import CaptureSession
from trainmon.captures.suspension import guarded, undo_all
from trainmon.hooks.torch_hooks import Hook


class TokenRange:
    """Counts the calls of the first model, and captures those from the first to the last of a range.

    As in msprobe, code between two calls belongs to the earlier one: an engine's sampling, for example. Code before the
    model's first call, which prepares its inputs, is captured too.
    """

    def __init__(self, models: Sequence[torch.nn.Module], token_range: Any, session: CaptureSession) -> None:
        if not models:
            raise ValueError("token_range: `start` requires the model whose calls are counted")
        if not isinstance(token_range, list | tuple) or len(token_range) != 2:
            raise TypeError(f"token_range: expected two integers, found {token_range!r}")
        first, last = token_range
        if (
            not all(isinstance(one, int) and not isinstance(one, bool) for one in (first, last))
            or not 0 <= first <= last
        ):
            raise ValueError(f"token_range: expected two integers, 0 <= first <= last, found {token_range!r}")
        self._first, self._last = first, last
        self._session = session
        self._calls = 0
        self._handles: list[RemovableHandle] = []

    def begin(self, models: Sequence[torch.nn.Module], is_list: bool) -> None:
        """Starts counting."""
        self.end()
        self._calls = 0

        def start() -> None:
            guarded(lambda: self._session.start(models, is_list), self._session.capture)

        def entering(_module: torch.nn.Module, _args: Any) -> None:
            number, self._calls = self._calls, self._calls + 1
            if number == self._last + 1 or (number == 0 and self._first > 0):
                guarded(self._session.stop, self._session.capture)
            elif number == self._first and number > 0:
                start()

        self._handles = [models[0].register_forward_pre_hook(Hook(entering))]
        start()

    def end(self) -> None:
        """Stops counting."""
        handles, self._handles = self._handles, []
        undo_all([handle.remove for handle in handles], self._session.capture)
