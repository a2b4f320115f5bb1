"""The command `trainmon`, and `python -m trainmon`: all commands of the program, and `run`."""

from __future__ import annotations

import os
import sys

from trainmon._trainmon import run_program

#: Standard streams, by their descriptors.
_STREAMS = (0, 1, 2)


def main(name: str = "trainmon") -> int:
    """Runs the process's command line and returns the exit status; `run` may end the process when its script ends.
    `name` is the program's name in usage and help. Only `run` imports torch."""
    words = sys.argv[1:]
    if words[:2] == ["help", "run"]:
        words = ["run", "--help"]
    if words[:1] == ["run"]:
        from trainmon.integrations.run import main as run

        run(words[1:], name)
        return 0
    _occupy_streams()
    return run_program([name, *words])


def _occupy_streams() -> None:
    """Opens closed standard streams on the null device, as Rust programs do: a file opened later would otherwise get
    the stream's descriptor and receive its output."""
    for _ in filter(_is_closed, _STREAMS):
        # The lowest free descriptor: this one, because those below are open by now.
        os.open(os.devnull, os.O_RDWR)


def _is_closed(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return True
    return False


if __name__ == "__main__":
    status = main("python -m trainmon")
    # A script ends the way it would without `run`: exit handlers must not see an additional exception.
    if status:
        sys.exit(status)
