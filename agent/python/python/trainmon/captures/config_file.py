"""A capture's config file, with the switch that may change while the training runs."""

from __future__ import annotations

import time
from pathlib import Path

from trainmon._trainmon import ConfigError

#: Seconds between two checks of the file, while the capture is on and while it is off.
LOOKS_S = {True: 0.5, False: 3.0}


class ConfigFile:
    """The file of a config; without a path, an empty one."""

    def __init__(self, path: str | None) -> None:
        if path is not None and not isinstance(path, str):
            raise ConfigError(f"config_path: expected a text, found `{type(path).__name__}`")
        self._path = None if path is None else Path(path)
        self._is_watched = False
        self._state: tuple[int, int] | None = None
        self._looked = 0.0

    @property
    def name(self) -> str:
        """The file's name in errors."""
        return "config" if self._path is None else str(self._path)

    def text(self) -> str:
        """The file's contents. Raises `ConfigError` if it cannot be read."""
        if self._path is None:
            return "{}"
        if self._path.suffix != ".json":
            raise ConfigError(f"config_path `{self._path}`: expected a file whose name ends in `.json`")
        try:
            return self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"config_path `{self._path}` cannot be read: {error}") from error

    def begins(self, dump_enable: bool | None) -> None:
        """Only a config with the switch is checked again."""
        self._is_watched = self._path is not None and dump_enable is not None
        self._state = self._now()
        self._looked = time.monotonic()

    def changed(self, is_enabled: bool) -> str | None:
        """The new text, if the file has changed since the last check and a check is due."""
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
            # It is being replaced: the next check finds it.
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
