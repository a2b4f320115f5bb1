"""Runs programs that import msprobe's `PrecisionDebugger`: `run_dump_cases.py JOBS trainmon|msprobe`, a file of JSON.

A job is `{"program", "arguments", "directory", "variables"}`. torch is imported once, and with msprobe what it imports
itself where that is installed; every job runs in a process forked from here, several ranks of one job side by side.
`trainmon` gives them trainmon's names in place of msprobe's.
Prints the outcome of each as JSON.
"""

import atexit
import contextlib
import io
import json
import os
import runpy
import socket
import sys
import traceback
import types
from pathlib import Path

import torch
import torch._dynamo

WHO = sys.argv[2]
if WHO == "msprobe":
    import msprobe.pytorch  # noqa: F401

    with contextlib.suppress(ImportError):
        import megatron.core  # noqa: F401
else:
    import trainmon
    from trainmon.captures import debugger, session, tensors

    assert debugger and session and tensors
torch.set_num_threads(1)

#: What programs made. DDP's reducer takes the last process group with it, whose end waits for gloo's thread with
#: Python's lock held; that thread may wait for the lock to give a tensor back. So nothing goes before the process does.
KEPT: list[dict] = []


def as_msprobe() -> None:
    """`import msprobe.pytorch` gives trainmon's."""
    package, module = types.ModuleType("msprobe"), types.ModuleType("msprobe.pytorch")
    for name in ("PrecisionDebugger", "seed_all", "module_dump", "module_dump_end", "random_save"):
        if hasattr(trainmon, name):
            setattr(module, name, getattr(trainmon, name))
    package.pytorch = module
    sys.modules.update({"msprobe": package, "msprobe.pytorch": module})


def run(job: dict, variables: dict) -> None:
    os.environ.update(variables)
    os.chdir(job["directory"])
    with Path("output.log").open("a", encoding="utf-8") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    if WHO == "trainmon":
        as_msprobe()
    sys.path.insert(0, str(Path(job["program"]).parent))
    sys.argv = [job["program"], *job["arguments"]]
    if "source" in job:
        names = {"__name__": "__main__"}
        exec(compile(job["source"], job["program"], "exec"), names)
    else:
        names = runpy.run_path(job["program"], run_name="__main__")
    KEPT.append(names)


def fork(job: dict, variables: dict) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        run(job, variables)
        status = 0
    except BaseException:
        out = io.StringIO()
        traceback.print_exc(file=out)
        os.write(2, out.getvalue().encode())
    sys.stdout.flush()
    # As a script's end: what is registered for it runs.
    atexit._run_exitfuncs()
    os._exit(status)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


outcomes = []
for job in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
    ranks = job.get("ranks", 1)
    shared = {}
    if ranks > 1:
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks)}
    children = []
    for rank in range(ranks):
        own = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} if ranks > 1 else {}
        children.append(fork(job, {**job.get("variables", {}), **own}))
    outcomes.append([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
print(json.dumps(outcomes))
