"""The command `trainmon`, and `python -m trainmon`: all commands of the program, and `run`."""

from __future__ import annotations

import os
import sys

from trainmon._trainmon import run_program

#: Standard streams, by their descriptors.
_STREAMS = (0, 1, 2)


def main(name: str = "trainmon") -> int:
    """Runs the process's command line and returns the exit status; `run` may end the process as its script ends. `name`
    is what usage and help call the program. Torch is imported by `run` alone."""
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
    """A stream that was closed leads nowhere, as in every program of Rust's: a file opened later must not take its
    descriptor, and then what is meant for the stream."""
    for _ in filter(_is_closed, _STREAMS):
        # The lowest free descriptor: this one, for those below are occupied by now.
        os.open(os.devnull, os.O_RDWR)


def _is_closed(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return True
    return False


if __name__ == "__main__":
    status = main("python -m trainmon")
    # A script that was run ends as it did: an exception more would be seen by what runs at the end.
    if status:
        sys.exit(status)
