"""Where ranks of a job that does not go on leave word for each other: the store, or files where there is none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from trainmon._trainmon import Monitor


class HangStore(Protocol):
    """What `HangWatch` uses of torch's stores."""

    def set(self, key: str, value: str, /) -> None: ...
    def get(self, key: str, /) -> bytes: ...
    def check(self, keys: list[str], /) -> bool: ...
    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes: ...


class FileHangStore:
    """A file per key, in a directory that the ranks share. They stay: of a job that was killed they tell the same.

    Nothing is written before a job hangs."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def set(self, key: str, value: str, /) -> None:
        """Written whole or not at all."""
        self._directory.mkdir(parents=True, exist_ok=True)
        temporary = self._directory / f".{quote(key, safe='')}.{os.getpid()}"
        temporary.write_text(value, encoding="utf-8")
        temporary.replace(self._file(key))

    def get(self, key: str, /) -> bytes:
        """Raises `OSError` where nothing was set."""
        return self._file(key).read_bytes()

    def check(self, keys: list[str], /) -> bool:
        """Whether all of them were set."""
        return all(self._file(key).exists() for key in keys)

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """The first to come leaves `desired`; each gets what is there, or nothing while that is being written."""
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
    """Files in the run's directory; None where the ranks have none in common."""
    run, rank = monitor.run_directory, monitor.rank_directory
    return FileHangStore(Path(run) / "hangs") if run is not None and run != rank else None
