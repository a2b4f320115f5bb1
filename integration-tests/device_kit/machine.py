"""`python -m device_kit.machine`: what this machine is, as JSON. In a process of its own: importing torch may fail."""

from __future__ import annotations

import importlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

#: Packages whose versions are told.
_PACKAGES = ("mindstudio-probe", "numpy", "pandas", "triton", "transformers")

#: What nvidia-smi is asked for; it only reads.
_ASKED = (
    *("name", "driver_version", "memory.total", "clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem"),
    *("power.limit", "temperature.gpu", "persistence_mode", "ecc.mode.current", "mig.mode.current"),
)


def why_no_device() -> str | None:
    """Why nothing can run on a CUDA device; None if it can."""
    import torch

    return None if torch.cuda.is_available() else "no CUDA device"


def card() -> dict[str, Any]:
    """The card as the driver's own program describes it now: clocks change under load. Empty without one."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    command = [program, f"--query-gpu={','.join(_ASKED)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"nvidia-smi": str(error)}
    line = (done.stdout or done.stderr).strip().splitlines()[:1]
    if done.returncode != 0 or not line:
        return {"nvidia-smi": " ".join(line) or f"exit status {done.returncode}"}
    return dict(zip(_ASKED, (value.strip() for value in line[0].split(",")), strict=False))


def processor() -> str:
    """The processor's name."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def version_of(distribution: str) -> str | None:
    """The version of an installed package; None of one that is not. It is not imported: some take seconds."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def facts() -> dict[str, Any]:
    """Everything a reader of the figures has to know of the machine."""
    import torch

    asked: dict[str, Callable[[], Any]] = {
        "python": platform.python_version,
        "system": platform.platform,
        "processor": processor,
        "cores": lambda: len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "torch": lambda: torch.__version__,
        "cuda of torch": lambda: torch.version.cuda,
        "cudnn": torch.backends.cudnn.version,
        "trainmon": lambda: importlib.import_module("trainmon").__version__,
    }
    if why_no_device() is None:
        asked |= {
            "card": lambda: torch.cuda.get_device_name(0),
            "memory in bytes": lambda: torch.cuda.get_device_properties(0).total_memory,
            "multiprocessors": lambda: torch.cuda.get_device_properties(0).multi_processor_count,
            "capability": lambda: ".".join(map(str, torch.cuda.get_device_capability(0))),
            "devices": torch.cuda.device_count,
        }
    found = {"no device": why_no_device(), **{name: _answer(one) for name, one in asked.items()}}
    found |= {name: version_of(name) for name in _PACKAGES}
    return {**found, **{name: shutil.which(name) for name in ("nvcc", "gcc", "cc")}}


def _answer(asked: Callable[[], Any]) -> Any:
    try:
        return asked()
    except Exception as error:  # a library at odds with its driver may answer anything
        return f"unknown: {type(error).__name__}: {error}"


def titles(modules: dict[str, str]) -> dict[str, list[str]]:
    """What each part would measure; of one that cannot be imported its name: it says why when it is run."""
    return {name: _titles_of(module) or [name] for name, module in modules.items()}


def _titles_of(module: str) -> list[str]:
    try:
        return list(importlib.import_module(module).TITLES)
    except Exception:  # as above
        return []


def main() -> int:
    """Prints the facts and the titles of all parts; fails with one line where torch cannot be imported."""
    from device_kit.one_part import add_last
    from device_kit.parts import PARTS

    add_last([Path(place) for place in sys.argv[1:]])
    try:
        import torch  # noqa: F401
    except BaseException as error:  # an import may end in anything
        sys.stdout.write(json.dumps({"failed": f"torch cannot be imported: {type(error).__name__}: {error}"}))
        return 0
    found = {"facts": facts(), "titles": titles({part.name: part.module for part in PARTS})}
    sys.stdout.write(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
