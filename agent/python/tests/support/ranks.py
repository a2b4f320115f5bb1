"""Runs a script on several ranks with torchrun and gloo."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

#: The variables before any library was imported: some set variables that change how torch finds its devices.
ENVIRONMENT = dict(os.environ)

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
    timeout: float = 240,
    python: str = sys.executable,
    directory: Path | None = None,
) -> str:
    """Runs `scripts/<script>` on so many ranks; gives what they printed. Fails with that when a rank failed.

    The script must end with `finish()` of `support.ranks`: torch 2.13 with gloo sometimes aborts at interpreter exit,
    with or without a monitor.
    """
    command = [python, "-m", "torch.distributed.run", f"--nproc_per_node={ranks}", "--master_addr=127.0.0.1"]
    command += [f"--master_port={free_port()}", str(SCRIPTS / script), *map(str, arguments)]
    return run(command, environment=environment, timeout=timeout, directory=directory)


def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    timeout: float = 240,
    directory: Path | None = None,
) -> str:
    """Runs a command with one thread per process; gives its output, fails with it."""
    tests = str(SCRIPTS.parent)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    modules = os.pathsep.join(filter(None, [tests, ENVIRONMENT.get("PYTHONPATH")]))
    variables = {**ENVIRONMENT, "OMP_NUM_THREADS": "1", "PYTHONPATH": modules, "PATH": path, "PYTHONWARNINGS": "ignore"}
    variables.update(environment or {})
    done = subprocess.run(
        command,
        env=variables,
        cwd=directory,
        timeout=timeout,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}\nexit status {done.returncode}\n{done.stdout[-8000:]}"
    return done.stdout


def finish() -> None:
    """Ends a rank's process without the interpreter's exit, after all ranks are done."""
    from torch import distributed

    if distributed.is_initialized():
        distributed.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
