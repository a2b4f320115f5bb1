"""Trains under DDP until an alert of rank 1 alone ends it on both ranks: `alert_stop.py OUTPUT`."""

import json
import sys
import time
from pathlib import Path

import trainmon  # before anything of the frameworks

# isort: split
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from support import tiny
from support.alerting import config_of
from support.ranks import finish

#: The step in which a gradient of rank 1 is NaN before reduction.
#: The first steps are the slow ones.
SPOILT = 60

distributed.init_process_group("gloo")
output, rank = Path(sys.argv[1]), distributed.get_rank()
net = tiny.model()
place = {"step": 0}
# What every rank gets is finite again: the rule looks at what each rank has of its own.
net.head.weight.register_hook(
    lambda gradient: gradient * float("nan") if rank == 1 and place["step"] == SPOILT else gradient
)
model = DistributedDataParallel(net)
optimizer = tiny.optimizer_of(model)
rule = {
    "rule_name": "NonFinite",
    "actions": ["stop"],
    "on": {"scope": "tensor", "signal": "grad_unreduced", "targets": ["head"]},
}
watch = trainmon.watch(model, optimizer, config=config_of(rule, output))
deadline = time.monotonic() + 150
while not watch.stop_requested:
    # A rank that went on alone would hang in the other's collective.
    assert time.monotonic() < deadline, f"rank {rank} was not asked to end"
    optimizer.zero_grad()
    tiny.loss_of(model, place["step"], rank).backward()
    for one in model.parameters():
        one.grad.nan_to_num_()
    optimizer.step()
    place["step"] += 1
    time.sleep(0.02)
report = watch.close()
assert "0 dropped" in report, report
(output / f"left{rank}.json").write_text(json.dumps(place["step"]))
finish()
