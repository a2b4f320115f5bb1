"""Trains on two ranks while rank 0's socket is asked for a capture, and rank 1 gets a signal, until every rank has made
both: `on_demand_ranks.py OUTPUT ddp|fsdp2`."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import trainmon  # before anything of the frameworks

# isort: split
import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from support import control, tiny
from support.ranks import finish
from support.waiting import eventually


class Orders(threading.Thread):
    """Asks for a capture at the socket, has rank 1 signalled, and waits until both are over everywhere."""

    def __init__(self, output: Path) -> None:
        super().__init__()
        self.output = output
        self.wants_signal = False
        self.over: dict[str, Any] = {}

    def run(self) -> None:
        (description,) = eventually(lambda: list(self.output.glob("control-*/control.json")))
        addresses = Path(json.loads(description.read_text())["socket"]).parent
        number = control.ask(addresses, "POST", "/dump", json.dumps({"steps": 2}))["id"]
        self.over["ctl"] = self.wait(addresses, lambda one: one["id"] == number)
        self.wants_signal = True
        self.over["signal"] = self.wait(addresses, lambda one: "a signal to rank 1" in one["what"])

    @staticmethod
    def wait(addresses: Path, is_it: Any) -> Any:
        """A capture, once both ranks have told how it went: the other may be over before the one that is asked."""

        def is_over(one: Any) -> bool:
            return one["stage"] in ("done", "failed") and bool(one["ranks_done"] + one["ranks_failed"])

        def over() -> Any:
            captures = control.ask(addresses, "GET", "/status")["captures"]
            return next((one for one in captures if is_it(one) and is_over(one)), None)

        found = eventually(over)
        assert found["stage"] == "done", found
        return found


distributed.init_process_group("gloo")
output, rank = Path(sys.argv[1]), distributed.get_rank()
config = {"wg_distribution": True, "ops": ["norm"], "output_dir": str(output), "queue_steps": 4096, "control": {}}
net = tiny.model()
if sys.argv[2] == "fsdp2":
    for layer in net.layers:
        fully_shard(layer)
    model: Any = fully_shard(net)
else:
    model = DistributedDataParallel(net)
optimizer = tiny.optimizer_of(model)
group = distributed.new_group([0, 1])
watch = trainmon.watch(model, optimizer, config=config)
orders = Orders(output)
if rank == 0:
    orders.start()
step, left = 0, 3
is_signalled = False
deadline = time.monotonic() + 150
while left:
    optimizer.zero_grad()
    mark = torch.full((4,), float(rank + 1))
    work = distributed.all_reduce(mark, group=group, async_op=True)
    loss = tiny.loss_of(model, step, rank)
    work.wait()
    loss.backward()
    optimizer.step()
    step += 1
    is_over = (rank == 0 and not orders.is_alive()) or time.monotonic() > deadline
    told = torch.tensor([1.0 if is_over else 0.0, 1.0 if orders.wants_signal else 0.0])
    distributed.all_reduce(told, op=distributed.ReduceOp.MAX)
    if told[1] and rank == 1 and not is_signalled:
        is_signalled = True
        os.kill(os.getpid(), signal.SIGUSR1)
    left -= told[0].item() > 0
report = watch.close()
assert "0 dropped" in report, report
if rank == 0:
    assert set(orders.over) == {"ctl", "signal"}, "nobody captured"
    captures = str(Path(watch.monitor.run_directory or "") / "captures")
    (output / "answer.json").write_text(json.dumps({**orders.over, "captures": captures}))
finish()
