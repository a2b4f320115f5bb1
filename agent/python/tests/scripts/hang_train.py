"""Trains on several ranks; one stays away from an all-reduce after step 5 until the others have said so:
`hang_train.py OUTPUT STORE`.

The store is torch's own (`tcp`), a `file`, or one of which the process is killed before the job hangs (`gone`), or
stopped, so that it takes connections and never answers (`stopped`). In
`skip` (`tcp`) the rank leaves the call out and goes on to its next one, of another group: nobody gets any further, and
the processes end once the alert is there. Of the same group it cannot be: gloo aborts where sizes differ.
"""

import json
import multiprocessing
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import trainmon  # before anything of the frameworks

# isort: split
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from support import control
from support.ranks import finish
from support.waiting import eventually

STEPS, AT = 8, 5


def serve(pipe: Any) -> None:
    """A store in a process of its own."""
    server = distributed.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    pipe.send(server.port)
    pipe.recv()


def start(output: Path, store: str) -> Any:
    """The process group; gives the process of its store, where that is to be killed."""
    environment = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
    if store in ("tcp", "skip"):
        distributed.init_process_group("gloo")
    elif store == "file":
        distributed.init_process_group("gloo", init_method=f"file://{output}/store", **environment)
    else:
        told, server = output / "port", None
        if environment["rank"] == 0:
            here, there = multiprocessing.get_context("fork").Pipe()
            server = multiprocessing.get_context("fork").Process(target=serve, args=(there,), daemon=True)
            server.start()
            told.with_suffix(".new").write_text(str(here.recv()))
            told.with_suffix(".new").rename(told)
        eventually(told.exists)
        client = distributed.TCPStore("127.0.0.1", int(told.read_text()), None, False, wait_for_workers=False)
        distributed.init_process_group("gloo", store=client, **environment)
        return server
    return None


def status(output: Path) -> dict[str, Any]:
    """What rank 0's live control says."""
    for description in output.glob("control-*/control.json"):
        addresses = Path(json.loads(description.read_text())["socket"]).parent
        return dict(control.ask(addresses, "GET", "/status"))
    return {"hang": None}


def wait_for_alert(output: Path) -> None:
    """Until some rank's findings are there, and live control shows it."""

    def told() -> dict[str, Any] | None:
        found = list(output.glob("*-*/anomaly_detected/rank*/anomaly.json"))
        shown = status(output)
        return shown if shown["hang"] is not None and any("Stall" in file.read_text() for file in found) else None

    shown = eventually(told, pause=0.05, what="the alert")
    print(f"status shows: {shown['hang']}", flush=True)
    print(f"in progress: {json.dumps(shown['collectives']['in_progress'])}", flush=True)


def end_once_alerted(output: Path, rank: int, ranks: int) -> None:
    """Beside a training that hangs: no rank ends before all have seen the alert, so that none raises."""
    wait_for_alert(output)
    (output / f"seen{rank}").touch()
    eventually(lambda: len(list(output.glob("seen*"))) == ranks)
    sys.stdout.flush()
    os._exit(0)


output = Path(sys.argv[1])
server = start(output, sys.argv[2])
rank, absent = distributed.get_rank(), distributed.get_world_size() // 2
pair = distributed.new_group([absent, distributed.get_world_size() - 1]) if sys.argv[2] == "skip" else None
model = DistributedDataParallel(nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
config = {
    "cc_distribution": {"enable": True, "cc_codeline": ["hang_train"]},
    "ops": ["norm"],
    "control": {},
    "alert": {"dump": True, "rules": [{"rule_name": "Stall", "args": {"seconds": 1.5, "threshold": 4}}]},
}
with trainmon.watch(model, optimizer, config=config, output_dir=str(output)):
    for step in range(STEPS):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        if step == AT and server is not None:
            os.kill(server.pid, signal.SIGSTOP if sys.argv[2] == "stopped" else signal.SIGKILL)
        if step == AT and pair is not None:
            ending = threading.Thread(target=end_once_alerted, args=(output, rank, distributed.get_world_size()))
            ending.start()
        elif step == AT and rank == absent:
            wait_for_alert(output)
        mark = torch.ones(3)
        try:
            if step == AT and pair is not None and rank == absent:
                distributed.all_reduce(torch.ones(5), group=pair)
            distributed.all_reduce(mark)
        except RuntimeError:
            # Another rank has ended.
            assert pair is not None and step == AT
            ending.join()
        assert mark.tolist() == [distributed.get_world_size()] * 3
if sys.argv[2] in ("gone", "stopped"):
    if server is not None:
        server.kill()
    sys.stdout.flush()
    os._exit(0)
finish()
