"""Runs Megatron-LM's own pretrain_gpt.py on CPU. Arguments: the directory with it, then its arguments.

Its `megatron/core` must not be there: the installed megatron-core is used, which brings the compiled dataset helpers.
"""

from __future__ import annotations

import functools
import os
import runpy
import sys

from support import megatron_cpu

megatron_cpu.install()

directory = sys.argv[1]
sys.path.insert(0, directory)

import megatron.core.datasets.utils as datasets  # noqa: E402
import megatron.training.initialize as initialize  # noqa: E402
import megatron.training.training as training  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)
datasets.compile_helpers = lambda: None
if hasattr(initialize, "fused_kernels"):
    # It would ask nvcc for its version.
    initialize.fused_kernels.load = lambda _args: None
# Megatron's own parameter, which its pretrain function does not pass on.
training.initialize_megatron = functools.partial(training.initialize_megatron, allow_no_cuda=True)
sys.argv = [os.path.join(directory, "pretrain_gpt.py"), *sys.argv[2:]]  # noqa: PTH118
runpy.run_path(sys.argv[0], run_name="__main__")
monitor = getattr(training, "monitor", None)
if monitor is not None:
    # `os._exit` leaves out what the end of a process delivers.
    monitor.close()
torch.distributed.barrier()
sys.stdout.flush()
sys.stderr.flush()
os._exit(0)
