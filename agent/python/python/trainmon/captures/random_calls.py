"""`random_save`: the calls of random functions, in order."""

from __future__ import annotations

import contextlib
import csv
import functools
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import torch

from trainmon.captures.debugger import rank_of_process
from trainmon.captures.seeds import _DRAWING
from trainmon.common.notices import say
from trainmon.hooks.replacement import replace
from trainmon.signals.stacks import stack_from

#: Names in generators' modules that do not draw.
_NO_DRAWING = {"seed", "getstate", "setstate", "get_state", "set_state", "default_rng"}
_NO_DRAWING |= {"get_bit_generator", "set_bit_generator", "test"}
#: Functions that numpy no longer lists.
_OLDER = ("random_integers", "ranf", "sample")


class RandomCalls:
    """A CSV file of random calls: one row per call, with its name and the stack it came from."""

    _current: ClassVar[RandomCalls | None] = None

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o750)
        self._directory = directory
        self._time = time.strftime("%Y%m%d%H%M%S")
        self._process = os.getpid()
        self._rank = rank_of_process(None)
        self._path = self._named()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        # Line by line: the last call is in the file when the process is killed.
        self._file = os.fdopen(os.open(self._path, flags, 0o640), "a", buffering=1, encoding="utf-8", newline="")
        self._rows = csv.writer(self._file)
        self._rows.writerow(("api_name", "stack"))
        self._counts: Counter[str] = Counter()
        self._inside = threading.local()
        self._lock = threading.Lock()
        self._undo: list[Callable[[], object]] = []

    def start(self) -> None:
        """Starts writing calls."""
        for library, owner, name in drawing_functions():
            self._replace(library, owner, name)

    def stop(self) -> None:
        """Restores the random functions and completes the file."""
        if RandomCalls._current is self:
            RandomCalls._current = None
        # Two threads may end it at once.
        with contextlib.suppress(IndexError):
            while True:
                self._undo.pop()()
        # A disk that was full refuses the rest of the buffer again; close the file nevertheless.
        with contextlib.suppress(OSError, ValueError):
            self._file.close()

    def _replace(self, library: str, owner: Any, name: str) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def draw(*args: Any, **kwargs: Any) -> Any:
            # One may call another: the user called the outer one.
            if getattr(self._inside, "is_drawing", False) or os.getpid() != self._process:
                return original(*args, **kwargs)
            self._inside.is_drawing = True
            try:
                self._write(f"{library}.{name}")
                return original(*args, **kwargs)
            finally:
                self._inside.is_drawing = False

        self._undo.append(replace(owner, name, draw))

    def _write(self, name: str) -> None:
        try:
            with self._lock:
                if self._file.closed:
                    return
                self._follow_rank()
                number = self._counts[name]
                self._counts[name] += 1
                self._rows.writerow((f"{name}.{number}", stack_from(sys._getframe(2))))
        except Exception as error:
            # The training continues.
            say(f"random_save: cannot write to `{self._path}` any more: {error}")
            self.stop()

    def _follow_rank(self) -> None:
        """Updates the rank: the process may have joined its group since."""
        if self._rank is not None or (rank := rank_of_process(None)) is None:
            return
        self._rank = rank
        self._path = self._path.rename(self._named())

    def _named(self) -> Path:
        who = f"proc{self._process}" if self._rank is None else f"rank{self._rank}"
        return self._directory / f"random_{who}_{self._time}.csv"


def random_save(output_path: str = "./output") -> RandomCalls:
    """Writes every call of a random function of Python, numpy and torch, with its stack, to
    `<output_path>/random_rank<n>_<time>.csv`. The first difference between two files is the first place where two runs
    draw differently.

    Call `stop` of the returned object to end it; a second `random_save` continues the first one's file. Raises
    `TypeError` if `output_path` is no path, `OSError` if the file cannot be written. Cost: some 50 us per call of a
    random function.
    """
    if not isinstance(output_path, str):
        raise TypeError(f"random_save: output_path: expected a text, found `{type(output_path).__name__}`")
    current = RandomCalls._current
    if current is not None:
        return current
    RandomCalls._current = calls = RandomCalls(Path(output_path))
    calls.start()
    return calls


def drawing_functions() -> Iterator[tuple[str, Any, str]]:
    """The library's name in the file, the object that holds the function, and its name."""
    for name in random.__all__:
        # A class is none: it creates another generator.
        if name not in _NO_DRAWING and not isinstance(getattr(random, name), type):
            yield "python_random", random, name
    numpy = sys.modules.get("numpy.random")
    for name in dict.fromkeys((*getattr(numpy, "__all__", ()), *_OLDER)):
        function = getattr(numpy, name, None)
        if callable(function) and name not in _NO_DRAWING and not isinstance(function, type):
            yield "numpy_random", numpy, name
    for name in _DRAWING["torch"]:
        yield "torch_random", torch, name
    for name in _DRAWING["torch.Tensor"]:
        yield "tensor_random", torch.Tensor, name
