"""Trains under DDP while rank 0's socket gets an order, until every rank has followed it: `control_ranks.py OUTPUT`."""

import json
import sys
import threading
import time
from pathlib import Path

import trainmon  # before anything of the frameworks

# isort: split
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from support import control, tiny
from support.ranks import finish
from support.waiting import eventually

ORDER = {"targets": ["layers.1.fc1"], "kinds": {"param": True, "weight_grad": False, "moments": True}}


class Orders(threading.Thread):
    """Gives one order at the socket, and waits until every rank has followed it."""

    def __init__(self, output: Path) -> None:
        super().__init__()
        self.output = output
        self.switch: int | None = None

    def run(self) -> None:
        (description,) = eventually(lambda: list(self.output.glob("control-*/control.json")))
        socket = Path(json.loads(description.read_text())["socket"])
        self.switch = control.order(socket.parent, "/set", ORDER, stage="switched")


distributed.init_process_group("gloo")
output, rank = Path(sys.argv[1]), distributed.get_rank()
config = {
    "wg_distribution": True,
    "ops": ["norm"],
    # As the wrapped model calls it; the order has the name that is shown.
    "targets": {"module.layers.0": {}},
    "output_dir": str(output),
    "queue_steps": 4096,
    "step_count_per_record": 100000,
    "control": {},
}
model = DistributedDataParallel(tiny.model())
optimizer = tiny.optimizer_of(model)
watch = trainmon.watch(model, optimizer, config=config)
orders = Orders(output)
if rank == 0:
    orders.start()
step, left = 0, 3
deadline = time.monotonic() + 150
# Some steps more when all have switched.
while left:
    optimizer.zero_grad()
    tiny.loss_of(model, step, rank).backward()
    optimizer.step()
    step += 1
    # Real steps take longer than these: the threads that look for an agreement have their turn within one, whatever
    # else the machine does.
    time.sleep(0.05)
    is_over = (rank == 0 and not orders.is_alive()) or time.monotonic() > deadline
    goes_on = torch.tensor(0.0 if is_over else 1.0)
    distributed.all_reduce(goes_on, op=distributed.ReduceOp.MIN)
    left -= goes_on.item() == 0
report = watch.close()
assert "0 dropped" in report, report
if rank == 0:
    assert orders.switch is not None, "nobody followed the order"
    (output / "answer.json").write_text(json.dumps({"step": orders.switch, "steps": step}))
finish()
