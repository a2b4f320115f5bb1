"""Runs golden cases with the real msprobe on this machine: `run_msprobe_cases.py TOOLS CASE_DIRECTORY...`, and more
after a `--`.

msprobe is imported once; every case runs in a process forked from here.
"""

import importlib
import os
import runpy
import sys
import traceback

import torch

# Where Megatron can be imported msprobe takes every model for Megatron's, and loses the gradients before reduction.
sys.modules["megatron"] = None  # type: ignore[assignment]
for name in ("msprobe.pytorch", "msprobe.core.monitor_v2.trainer"):
    importlib.import_module(name)

torch.set_num_threads(1)
failed = []
groups: list[list[str]] = [[]]
for word in sys.argv[1:]:
    groups.append([]) if word == "--" else groups[-1].append(word)
for tools, *directories in groups:
    for directory in directories:
        child = os.fork()
        if child == 0:
            try:
                sys.path.insert(0, tools)
                sys.argv = ["run_monitor.py", directory]
                runpy.run_path(f"{tools}/run_monitor.py", run_name="__main__")
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            sys.stdout.flush()
            os._exit(0)
        if os.waitpid(child, 0)[1] != 0:
            failed.append(directory)
sys.exit(f"failed: {failed}" if failed else 0)
