"""What this package is measured beside: the real msprobe, and the scripts that let both take turns."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: The last lines of what a script said that failed.
_LINES = 15


@functools.cache
def why_no_msprobe() -> str | None:
    """Why nothing is compared with msprobe; None if it can be imported. Cost: its import, some seconds."""
    os.environ.setdefault("MSPROBE_LOG_LEVEL", "4")
    # Where Megatron can be imported msprobe takes every model for Megatron's.
    sys.modules.setdefault("megatron", None)  # type: ignore[arg-type]
    try:
        import msprobe.pytorch  # noqa: F401
    except Exception as error:  # it refuses to lie below a directory with a space in its name, for one
        return f"msprobe cannot be imported: {type(error).__name__}: {' '.join(str(error).split())}"
    return None


def script(name: str) -> Path:
    """One of the benchmarks: beside this package in a kit, at home in a checkout."""
    here = Path(__file__).resolve().parent
    places = [here.parent / "benches" / name, here.parents[1] / "agent/python/benches" / name]
    for place in places:
        if place.is_file():
            return place
    raise FileNotFoundError(f"{name} is neither {places[0]} nor {places[1]}")


def run_script(name: str, arguments: Sequence[str], scratch: Path, seconds: float) -> Any:
    """Runs a benchmark in a process of its own and gives the figures that it wrote as JSON. Raises if it fails, with
    the end of what it said, or if it takes longer than `seconds`: then its own processes are ended, too."""
    scratch.mkdir(parents=True, exist_ok=True)
    figures, said = scratch / "figures.json", scratch / "output.txt"
    figures.unlink(missing_ok=True)
    command = [sys.executable, str(script(name)), *arguments, "--json", str(figures)]
    with said.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{name} took longer than {seconds:.0f} s: {_end_of(said)}") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if status != 0:
        raise RuntimeError(f"{name} ended with {status}: {_end_of(said)}")
    return json.loads(figures.read_text())


def _end_of(file: Path) -> str:
    return "\n".join(file.read_text(errors="replace").splitlines()[-_LINES:])
