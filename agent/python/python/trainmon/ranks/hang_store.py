"""The store in which ranks of a hanging job exchange their states: torch's, or files without one."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from trainmon._trainmon import Monitor


class HangStore(Protocol):
    """The methods of torch's stores that `HangWatch` uses."""

    def set(self, key: str, value: str, /) -> None: ...
    def get(self, key: str, /) -> bytes: ...
    def check(self, keys: list[str], /) -> bool: ...
    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes: ...


class StoreSilentError(Exception):
    """The store accepts calls and does not answer: its host process was stopped, or its machine has gone."""


#: The timeout of a call of the store, in seconds.
ANSWER_S = 10.0


class PromptHangStore:
    """A store whose calls return in time. Torch's may wait for ever for the answer of a stopped process.

    Calls run on a thread of their own; one that does not return is abandoned there, and no other is made."""

    def __init__(self, open_store: Callable[[], HangStore], seconds: float = ANSWER_S) -> None:
        """`open_store` returns the store of the current process group; it is called for each call, on that thread."""
        self._open_store = open_store
        self._seconds = seconds
        self._calls: queue.SimpleQueue[tuple[Callable[[HangStore], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.is_silent = False

    def open(self) -> None:
        """Connects to the store, while it answers. Raises the errors of that."""
        self._call(lambda _store: None)

    def set(self, key: str, value: str, /) -> None:
        """As `HangStore.set`; like the other methods, raises `StoreSilentError` if there is no answer."""
        self._call(lambda store: store.set(key, value))

    def get(self, key: str, /) -> bytes:
        """As `HangStore.get`."""
        found: bytes = self._call(lambda store: store.get(key))
        return found

    def check(self, keys: list[str], /) -> bool:
        """As `HangStore.check`."""
        return bool(self._call(lambda store: store.check(keys)))

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """As `HangStore.compare_set`."""
        found: bytes = self._call(lambda store: store.compare_set(key, expected, desired))
        return found

    def close(self) -> None:
        """Ends the thread once its call is over; another call begins a new one."""
        self._calls.put(None)
        self._thread = None

    def _call(self, call: Callable[[HangStore], Any]) -> Any:
        if self.is_silent:
            raise StoreSilentError("the store does not answer")
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="trainmon-hang-store", daemon=True)
            self._thread.start()
        answer: Future[Any] = Future()
        self._calls.put((call, answer))
        if not wait([answer], self._seconds).done:
            self.is_silent = True
            raise StoreSilentError(f"the store has not answered for {self._seconds:g} s")
        return answer.result()

    def _serve(self) -> None:
        while (asked := self._calls.get()) is not None:
            call, answer = asked
            try:
                answer.set_result(call(self._open_store()))
            except Exception as error:
                answer.set_exception(error)


class FileHangStore:
    """A file per key, in a directory that the ranks share. They stay: of a killed job they give the same information.

    Nothing is written before a job hangs."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def set(self, key: str, value: str, /) -> None:
        """Writes atomically."""
        self._directory.mkdir(parents=True, exist_ok=True)
        temporary = self._directory / f".{quote(key, safe='')}.{os.getpid()}"
        temporary.write_text(value, encoding="utf-8")
        temporary.replace(self._file(key))

    def get(self, key: str, /) -> bytes:
        """Raises `OSError` if the key was not set."""
        return self._file(key).read_bytes()

    def check(self, keys: list[str], /) -> bool:
        """Whether all of them were set."""
        return all(self._file(key).exists() for key in keys)

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """The first caller sets `desired`; each gets the current value, or an empty one while that is being written."""
        self._directory.mkdir(parents=True, exist_ok=True)
        try:
            with self._file(key).open("x", encoding="utf-8") as opened:
                opened.write(desired)
        except FileExistsError:
            return self.get(key)
        return desired.encode()

    def _file(self, key: str) -> Path:
        return self._directory / quote(key.removeprefix("hangs/"), safe="")


def shared_store(monitor: Monitor) -> Any:
    """Files in the run's directory; None if the ranks share none."""
    run, rank = monitor.run_directory, monitor.rank_directory
    return FileHangStore(Path(run) / "hangs") if run is not None and run != rank else None
