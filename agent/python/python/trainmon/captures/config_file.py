"""A capture's config file, and the switch in it that may be turned while the training runs."""

from __future__ import annotations

import time
from pathlib import Path

from trainmon._trainmon import ConfigError

#: Seconds between two looks at the file, while the capture is on and while it is off.
LOOKS_S = {True: 0.5, False: 3.0}


class ConfigFile:
    """The file a config was read from; none if there is none."""

    def __init__(self, path: str | None) -> None:
        if path is not None and not isinstance(path, str):
            raise ConfigError(f"config_path: expected a text, found `{type(path).__name__}`")
        self._path = None if path is None else Path(path)
        self._is_watched = False
        self._state: tuple[int, int] | None = None
        self._looked = 0.0

    @property
    def name(self) -> str:
        """What errors call it."""
        return "config" if self._path is None else str(self._path)

    def text(self) -> str:
        """What stands in it. Raises `ConfigError` if it cannot be read."""
        if self._path is None:
            return "{}"
        if self._path.suffix != ".json":
            raise ConfigError(f"config_path `{self._path}`: expected a file whose name ends in `.json`")
        try:
            return self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"config_path `{self._path}` cannot be read: {error}") from error

    def begins(self, dump_enable: bool | None) -> None:
        """Only a config that has the switch is looked at again."""
        self._is_watched = self._path is not None and dump_enable is not None
        self._state = self._now()
        self._looked = time.monotonic()

    def changed(self, is_enabled: bool) -> str | None:
        """The text, if the file was changed since the last look, and it is time to look."""
        if not self._is_watched or time.monotonic() - self._looked < LOOKS_S[is_enabled]:
            return None
        self._looked = time.monotonic()
        state = self._now()
        if state is None or state == self._state:
            return None
        self._state = state
        try:
            return self.text()
        except ConfigError:
            # It is being replaced: the next look finds it.
            self._state = None
            return None

    def _now(self) -> tuple[int, int] | None:
        if self._path is None:
            return None
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size
