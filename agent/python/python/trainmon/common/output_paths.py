"""The location of files that Python writes: beside those of the CSV exporter."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from trainmon._trainmon import Monitor


def run_directory(monitor: Monitor) -> Path | None:
    """The directory of this run's CSV files; None if none are written."""
    for exporter, places in monitor.locations():
        if exporter == "csv" and places:
            return Path(places[0])
    return None


def write_whole(file: Path, write: Callable[[TextIO], None]) -> None:
    """Writes a file atomically: completely or not at all. Raises `OSError`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as opened:
            write(opened)
            opened.flush()
            os.fsync(opened.fileno())
        # Like any other file of the run: `mkstemp` makes it readable for its owner only.
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
