"""`python -m trainmon.as_msprobe COMMAND ...` runs a program that imports msprobe with trainmon under msprobe's names.

For programs whose source must not be edited: SGLang, vllm-ascend. Without a command it prints a directory; with that
directory on `PYTHONPATH`, the same applies to every process. Refuses to run if the real msprobe is installed.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NoReturn

#: The directory of the package `msprobe` whose names are trainmon's.
DIRECTORY = str(Path(__file__).resolve().parent / "msprobe" / "names")

#: If it is 1, trainmon's names are used even if msprobe is installed.
OVER_VARIABLE = "TRAINMON_OVER_MSPROBE"

_HINT = f"uninstall it (`pip uninstall mindstudio-probe`), or set `{OVER_VARIABLE}=1` to use trainmon"


def real_msprobe() -> str | None:
    """The path of the real msprobe; None if it is not installed, or the user has chosen trainmon."""
    if os.environ.get(OVER_VARIABLE) == "1":
        return None
    elsewhere = [place for place in sys.path if str(Path(place or ".").resolve()) != DIRECTORY]
    spec = PathFinder.find_spec("msprobe", elsewhere)
    # A directory of that name is no package.
    return None if spec is None else spec.origin


def ensure_not_installed() -> None:
    """Raises `ImportError` if the real msprobe is installed, because an import of msprobe must not silently load
    trainmon."""
    real = real_msprobe()
    if real is not None:
        raise ImportError(f"msprobe is installed beside trainmon's replacement: `{real}`; {_HINT}")


class AclGraphDumper:
    """Msprobe's capture of Ascend graphs, which trainmon does not support."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        _refuse("AclGraphDumper")


def set_fx_dump_config(*_args: Any, **_kwargs: Any) -> None:
    """Msprobe's capture of torchair graphs, which trainmon does not support."""
    _refuse("set_fx_dump_config")


def set_ge_dump_config(*_args: Any, **_kwargs: Any) -> None:
    """Msprobe's capture of GE graphs, which trainmon does not support."""
    _refuse("set_ge_dump_config")


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(
        f"{name}: trainmon cannot capture Ascend graphs; run eagerly (vLLM: `enforce_eager=True`), and "
        "`PrecisionDebugger` captures every step (docs/serving.md)"
    )


def main(words: list[str]) -> None:
    """Runs the command in this process, or prints the directory. Ends with exit status 2 if msprobe is installed, 127
    if there is no such command."""
    real = real_msprobe()
    if real is not None:
        sys.stderr.write(f"error: msprobe is installed: `{real}`\nhint: {_HINT}\n")
        sys.exit(2)
    if not words:
        sys.stdout.write(f"{DIRECTORY}\n")
        return
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = DIRECTORY if not before else os.pathsep.join((DIRECTORY, before))
    try:
        os.execvp(words[0], words)  # noqa: S606 - running the user's command is the purpose
    except OSError as error:
        sys.stderr.write(f"error: cannot run `{words[0]}`: {error.strerror}\n")
        sys.exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
