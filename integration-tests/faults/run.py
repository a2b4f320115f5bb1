"""Runs one side of a pair: a forked process for each rank, with msprobe watching."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .case import Kernel, Plant, Setting
    from .trainer import Trainer

LONGEST_RUN_SECONDS = 300

RECORDERS = ("msprobe", "trainmon")

recorder = RECORDERS[0]
"""Whose `PrecisionDebugger` watches: msprobe's recorded the corpora of this directory whose name says nothing else."""


class RunFailedError(Exception):
    """A rank did not come to its end."""

    def __init__(self, place: Path, exits: list[int | None], text: str) -> None:
        super().__init__(f"{place}: the ranks ended with {exits}, expected 0 of each\n{text}")


def preload() -> None:
    """Imports what every run needs, so that the forked processes have it at once."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    # msprobe would import megatron in every process, where there is one: that takes most of a run's time.
    sys.modules["megatron"] = None  # type: ignore[assignment]
    import torch

    # The first optimizer imports it: 10 of the 11 seconds of a run.
    import torch._dynamo
    import torch.distributed

    if recorder == "msprobe":
        import msprobe.pytorch

        del msprobe
    else:
        from trainmon.captures import debugger, session, tensors

        del debugger, session, tensors

    from . import parallel, trainer
    from .held_out import parallel as held_out_parallel
    from .machines import trainer as machines_trainer

    del torch, parallel, trainer, held_out_parallel, machines_trainer


@dataclass(frozen=True)
class Side:
    """One of the two runs of a pair: golden, unless something is planted."""

    setting: Setting
    task: str
    plant: Plant | None = None
    kernel: Kernel | None = None
    trainer: type[Trainer] | None = None


def dump(place: Path, side: Side) -> None:
    """Writes `place/step{N}/rank{R}`."""
    place.mkdir(parents=True)
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as scratch:
        ranks = [
            context.Process(target=_run, args=(rank, place, side, Path(scratch))) for rank in range(side.setting.ranks)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join(LONGEST_RUN_SECONDS)
        exits = [process.exitcode for process in ranks]
        if any(code != 0 for code in exits):
            for process in ranks:
                process.kill()
            logs = sorted(Path(scratch).glob("log*"))
            raise RunFailedError(place, exits, "\n".join(log.read_text()[-4000:] for log in logs))


def elsewhere(place: Path, case: str, environment: str) -> None:
    """The same by another interpreter: that of an environment beside this one."""
    from .machines import trainer as machines_trainer

    python = Path(sys.prefix).parent / environment / "bin/python"
    home = Path(__file__).resolve().parent.parent
    command = [str(python), "-m", "faults.elsewhere", case, str(place), recorder, str(machines_trainer.Machines.seed)]
    subprocess.run(command, cwd=home, check=True, timeout=LONGEST_RUN_SECONDS)


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls it in a process of its own: this one must not compute, libraries choose their instruction set once."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=lambda: theirs.send(function(*arguments)))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    finally:
        process.join()


def _run(rank: int, place: Path, side: Side, scratch: Path) -> None:
    """One rank. msprobe is talkative: what it says is kept for the case of a failure."""
    log = os.open(scratch / f"log{rank}", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    # A thread's stack begins here: msprobe records stacks, and how this process came about is no part of the run.
    training = threading.Thread(target=_train_or_exit, args=(rank, place, side, scratch))
    training.start()
    training.join()
    sys.stdout.flush()
    os._exit(0)


def _train_or_exit(rank: int, place: Path, side: Side, scratch: Path) -> None:
    try:
        _train(rank, place, side, scratch)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def _train(rank: int, place: Path, side: Side, scratch: Path) -> None:
    import torch
    import torch.distributed as dist

    from .held_out.trainer import HeldOut
    from .held_out_tensor.trainer import Whole
    from .machines.trainer import Machines
    from .trainer import Trainer

    setting = side.setting
    torch.set_num_threads(1)
    if setting.ranks > 1:
        rendezvous = f"file://{scratch / 'rendezvous'}"
        dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=setting.ranks)
    if side.kernel is not None:
        side.kernel(rank)
    settings = scratch / f"config{rank}.json"
    settings.write_text(json.dumps(_configuration(place, setting, side.task)))
    debugger = _debugger(str(settings))
    running = (side.trainer or _suited(setting.net, HeldOut, Whole, Machines) or Trainer)(setting, rank)
    if side.plant is not None:
        side.plant(running)
    for step in range(setting.steps):
        running.load(step)
        debugger.start(model=running.net, rank_id=rank)
        running.train()
        debugger.stop()
        debugger.step()
    if setting.ranks > 1:
        dist.barrier()


def _debugger(settings: str) -> Any:
    """The recorder's. In both an altered function has torch's name: msprobe wraps what is bound, trainmon is told."""
    if recorder == "msprobe":
        from msprobe.pytorch import PrecisionDebugger

        return PrecisionDebugger(config_path=settings)
    import torch
    from trainmon import PrecisionDebugger as Ours

    from . import kernels

    debugger = Ours(config_path=settings)
    prefixes = {torch: "Torch", torch.nn.functional: "Functional", torch.Tensor: "Tensor"}
    for owner, name in kernels.ALTERED:
        if owner is torch.distributed:
            # It takes the operations from where they are defined.
            setattr(torch.distributed.distributed_c10d, name, getattr(owner, name))
        else:
            debugger.register_custom_api(owner, name, prefixes[owner])
    return debugger


def _suited(net: str, *trainers: Any) -> type[Trainer] | None:
    return next((trainer for trainer in trainers if net in trainer.nets), None)


def _configuration(place: Path, setting: Setting, task: str) -> dict[str, Any]:
    kind = "tensor" if task == "tensor" else "statistics"
    summary = "md5" if task == "md5" else "statistics"
    return {
        "task": kind,
        "dump_path": str(place),
        "rank": [],
        "step": [],
        "level": setting.level,
        "risk_level": setting.risk,
        kind: {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": summary},
    }
