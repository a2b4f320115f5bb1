"""Runs a script on one or several ranks, with gloo."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from support import forks
from support.environment import ENVIRONMENT, modules_in

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def run_ranks(
    script: str,
    ranks: int,
    *arguments: object,
    environment: Mapping[str, str] | None = None,
    timeout: float = 600,
    directory: Path | None = None,
) -> str:
    """Runs `scripts/<script>` on so many ranks; gives what they printed. Fails with that when a rank failed.

    What torchrun would tell them they are told; the tests of `run` and of the guides start torchrun itself.

    The script must end with `finish()` of `support.ranks`: torch 2.13 with gloo sometimes aborts at interpreter exit,
    with or without a monitor.
    """
    words = [str(SCRIPTS / script), *map(str, arguments)]
    each = variables_of_ranks(ranks, environment)
    status, said = forks.run_together(words, each, directory or Path.cwd(), timeout)
    assert status == 0, f"{shlex.join(words)}\nexit status {status}\n{said[-8000:]}"
    return said


def run_ranks_of_which_some_die(script: str, ranks: int, *arguments: object) -> None:
    """The others are left to end by themselves, whatever one ends with."""
    words = [str(SCRIPTS / script), *map(str, arguments)]
    forks.run_together(words, variables_of_ranks(ranks), Path.cwd(), 240, all_end=False)


def run_alone(
    script: str | Path,
    *arguments: object,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> str:
    """Runs a script (a name: of `scripts`) in one process; gives what it printed. Fails with that when it failed."""
    words = [str(SCRIPTS / script), *map(str, arguments)]
    status, said = forks.run_together(words, [variables_of_a_rank(environment)], directory or Path.cwd(), 240)
    assert status == 0, f"{shlex.join(words)}\nexit status {status}\n{said[-8000:]}"
    return said


def variables_of_a_rank(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a process that trains: one thread, this checkout's test modules."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    own = {"OMP_NUM_THREADS": "1", "PYTHONPATH": modules_in(SCRIPTS.parent), "PATH": path, "PYTHONWARNINGS": "ignore"}
    return {**ENVIRONMENT, **own, **(more or {})}


def variables_of_ranks(ranks: int, more: Mapping[str, str] | None = None) -> list[dict[str, str]]:
    """The environment of each rank of a job."""
    told = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "TORCHELASTIC_RUN_ID": "none"}
    told |= {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "GROUP_RANK": "0"}
    job = {**variables_of_a_rank(more), **told}
    return [{**job, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]


def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    timeout: float = 240,
    directory: Path | None = None,
) -> str:
    """Runs a command with one thread per process; gives its output, fails with it."""
    done = subprocess.run(
        command,
        env=variables_of_a_rank(environment),
        cwd=directory,
        timeout=timeout,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{shlex.join(command)}\nexit status {done.returncode}\n{done.stdout[-8000:]}"
    return done.stdout


def finish() -> None:
    """Ends a rank's process without the interpreter's exit, after all ranks are done."""
    from torch import distributed

    if distributed.is_initialized():
        distributed.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
