"""`python -m trainmon.as_msprobe COMMAND ...` runs a program that imports msprobe with trainmon behind msprobe's names.

For programs whose source is not to be edited: SGLang, vllm-ascend. Without a command it prints the directory that, on
`PYTHONPATH`, does it for all processes that are started from there. Where the real msprobe is installed it refuses.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NoReturn

#: The directory with the package `msprobe` whose names are ours.
DIRECTORY = str(Path(__file__).resolve().parent / "msprobe" / "names")

#: Set to 1, ours are used where msprobe is installed, too.
OVER_VARIABLE = "TRAINMON_OVER_MSPROBE"

_HINT = f"uninstall it (`pip uninstall mindstudio-probe`), or say that trainmon is meant: `{OVER_VARIABLE}=1`"


def real_msprobe() -> str | None:
    """Where the real msprobe lies; None: it is not installed, or the user has said that trainmon is meant."""
    if os.environ.get(OVER_VARIABLE) == "1":
        return None
    elsewhere = [place for place in sys.path if str(Path(place or ".").resolve()) != DIRECTORY]
    spec = PathFinder.find_spec("msprobe", elsewhere)
    # A directory that happens to have the name is no package.
    return None if spec is None else spec.origin


def ensure_not_installed() -> None:
    """Raises `ImportError` where the real msprobe is installed: nobody is to have another one than he thinks."""
    real = real_msprobe()
    if real is not None:
        raise ImportError(
            f"trainmon has msprobe's names on the path, and msprobe itself is installed: `{real}`; {_HINT}"
        )


class AclGraphDumper:
    """msprobe's capture of Ascend's graphs, which trainmon has not."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        _refuse("AclGraphDumper")


def set_fx_dump_config(*_args: Any, **_kwargs: Any) -> None:
    """Msprobe's capture of torchair's graphs, which trainmon has not."""
    _refuse("set_fx_dump_config")


def set_ge_dump_config(*_args: Any, **_kwargs: Any) -> None:
    """The same of the graph engine's."""
    _refuse("set_ge_dump_config")


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(
        f"{name}: trainmon captures no graphs of Ascend's; run eagerly (vLLM: `enforce_eager=True`), and "
        "`PrecisionDebugger` captures every step (docs/serving.md)"
    )


def main(words: list[str]) -> None:
    """Runs the command in this process's place, or prints the directory. Ends with exit status 2 where msprobe is
    installed, 127 where there is no such command."""
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
