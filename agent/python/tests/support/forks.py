"""Starts Python programs without waiting for `import torch`: each is forked from one process that has imported it.

For programs that are not about the start of a process. The others start as users' do (`subprocess`).
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from support import plain_paths
from support.environment import ENVIRONMENT

SERVER = Path(__file__).resolve().parent.parent / "scripts" / "fork_server.py"
#: Importing torch takes long where many do.
PATIENCE_S = 240


class Server:
    """The process that forks. It ends with this one."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        variables = {**ENVIRONMENT, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        variables["PYTHONPATH"] = ENVIRONMENT.get(plain_paths.PLACE, "")
        with theirs:
            command = [sys.executable, str(SERVER), str(theirs.fileno())]
            self._process = subprocess.Popen(command, env=variables, pass_fds=[theirs.fileno()])
        self._ended: dict[int, int] = {}
        self._channel.settimeout(PATIENCE_S)
        assert self._channel.recv(16) == b"ready", f"the fork server ended: {self._process.wait()}"

    def start(
        self, words: Sequence[str], variables: Mapping[str, str], directory: Path, files: tuple[int, int, int]
    ) -> int:
        """Starts `python WORDS` with these files as standard input, output and error; gives its process id."""
        program = {"words": list(words), "variables": dict(variables), "directory": str(directory.absolute())}
        socket.send_fds(self._channel, [json.dumps(program).encode()], files)
        child: int = json.loads(self._channel.recv(64))
        return child

    def wait_for_any(self, children: set[int], timeout: float) -> tuple[int, int]:
        """Waits until one of these has ended; gives it and its exit status, as `subprocess` counts them."""
        deadline = time.monotonic() + timeout
        while not children & self._ended.keys():
            self._channel.send(b"wait")
            self._channel.settimeout(max(0.1, deadline - time.monotonic()))
            try:
                child, status = json.loads(self._channel.recv(64))
            except TimeoutError:
                for one in children - self._ended.keys():
                    kill(one)
                self._channel.settimeout(PATIENCE_S)
                child, status = json.loads(self._channel.recv(64))
            finally:
                self._channel.settimeout(PATIENCE_S)
            self._ended[child] = status
        child = min(children & self._ended.keys())
        return child, self._ended.pop(child)


@functools.cache
def server() -> Server:
    """Of this process."""
    return Server()


def kill(child: int) -> None:
    """Ends a program and what it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)


def run(
    words: Sequence[str], variables: Mapping[str, str], *, directory: Path | None = None, timeout: float = PATIENCE_S
) -> subprocess.CompletedProcess[str]:
    """`subprocess.run([sys.executable, *words], capture_output=True, text=True)`."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, Path(os.devnull).open() as nothing:
        files = (nothing.fileno(), out.fileno(), err.fileno())
        child = server().start(words, variables, directory or Path.cwd(), files)
        _, status = server().wait_for_any({child}, timeout)
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(words, status, out.read().decode(), err.read().decode())


class Started:
    """A program that runs while the test goes on: `subprocess.Popen`, as far as tests need it."""

    def __init__(self, words: Sequence[str], variables: Mapping[str, str], directory: Path) -> None:
        (given, answer), (out, said), (err, complained) = (os.pipe() for _ in range(3))
        self._child = server().start(words, variables, directory, (given, said, complained))
        for one in (given, said, complained):
            os.close(one)
        self.stdin, self.stdout, self.stderr = os.fdopen(answer, "w"), os.fdopen(out), os.fdopen(err)

    def send_signal(self, number: int) -> None:
        os.kill(self._child, number)

    def wait(self, timeout: float = PATIENCE_S) -> tuple[int, str, str]:
        """Its exit status, and what it printed and said on standard error that was not read yet: little, for it is read
        when the program has ended."""
        self.stdin.close()
        _, status = server().wait_for_any({self._child}, timeout)
        with self.stdout, self.stderr:
            return status, self.stdout.read(), self.stderr.read()


def run_together(
    words: Sequence[str],
    variables: Sequence[Mapping[str, str]],
    directory: Path,
    timeout: float,
    *,
    all_end: bool = True,
) -> tuple[int, str]:
    """The same program so many times at once, each with variables of its own. Gives the first exit status that is not
    0, or 0, and what all printed. When one fails the others are ended, unless `all_end` is false."""
    with tempfile.TemporaryFile() as out, Path(os.devnull).open() as nothing:
        files = (nothing.fileno(), out.fileno(), out.fileno())
        children = {server().start(words, one, directory, files) for one in variables}
        worst, deadline = 0, time.monotonic() + timeout
        while children:
            child, status = server().wait_for_any(children, max(0.0, deadline - time.monotonic()))
            children.discard(child)
            if status != 0 and worst == 0:
                worst = status
                for one in children if all_end else ():
                    kill(one)
        out.seek(0)
        return worst, out.read().decode(errors="replace")
