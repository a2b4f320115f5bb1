"""Forks Python programs that find torch imported: `fork_server.py SOCKET_NUMBER`. See `support/forks.py`.

One thread, and no more than the import: what a child meets is what a fresh interpreter has after `import torch`.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import runpy
import signal
import socket
import sys
import types
import warnings
from pathlib import Path

import torch
import torch._dynamo
import torch.distributed.fsdp  # noqa: F401  (an optimizer's first import, and that of most of the programs)

LARGEST_REQUEST = 1 << 20


def next_program(channel: socket.socket) -> dict[str, object]:
    """Forks a child for every program that is asked for, and tells how each ended. Returns in the children only, with
    what they are to run."""
    children: set[int] = set()
    while True:
        data, files, *_ = socket.recv_fds(channel, LARGEST_REQUEST, 3)
        if not data:
            for child in children:
                os.kill(child, signal.SIGKILL)
            os._exit(0)
        if data == b"wait":
            child, status = os.wait()
            children.discard(child)
            channel.send(json.dumps([child, os.waitstatus_to_exitcode(status)]).encode())
            continue
        child = os.fork()
        if child == 0:
            channel.close()
            for number, file in enumerate(files):
                os.dup2(file, number)
                os.close(file)
            # Each line at once and whole: ranks share these files.
            for stream in (sys.stdout, sys.stderr):
                stream.reconfigure(line_buffering=True, write_through=False)
            program: dict[str, object] = json.loads(data)
            return program
        for file in files:
            os.close(file)
        children.add(child)
        # So that what it starts can be ended with it.
        with contextlib.suppress(ProcessLookupError):
            os.setpgid(child, child)
        channel.send(json.dumps(child).encode())


def become(words: list[str], variables: dict[str, str], directory: str, path: list[str]) -> None:
    """Runs what `python WORDS` would run, in this process."""
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(variables)
    if variables.get("PYTHONWARNINGS") == "ignore":
        warnings.simplefilter("ignore")
    places = [str(Path(one).absolute()) for one in variables.get("PYTHONPATH", "").split(os.pathsep) if one]
    if words[0] == "-m":
        sys.path[:] = [directory, *places, *path]
        sys.argv[:] = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    vars(module)["__builtins__"] = sys.modules["builtins"]
    if words[0] == "-c":
        sys.path[:], sys.argv[:] = ["", *places, *path], ["-c", *words[2:]]
        code = compile(words[1], "<string>", "exec", dont_inherit=True)
    else:
        file = str(Path(directory, words[0]))
        sys.path[:], sys.argv[:] = [str(Path(file).resolve().parent), *places, *path], words
        vars(module)["__file__"] = file
        code = compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)
    exec(code, vars(module))


if __name__ == "__main__":
    given = socket.socket(fileno=int(sys.argv[1]))
    # Of this interpreter, without its script's directory and PYTHONPATH.
    own = sys.path[1:]
    threads = len(list(Path("/proc/self/task").iterdir()))
    assert threads == 1, f"{threads} threads: a fork would lose all but one"
    gc.freeze()
    given.send(b"ready")
    program = next_program(given)
    try:
        become(program["words"], program["variables"], program["directory"], own)
    except (SystemExit, KeyboardInterrupt):
        # The interpreter ends itself by the signal that interrupted it.
        raise
    except BaseException as error:
        # A traceback begins in the program.
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__):
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.exit(1)
