"""Trains on several ranks; rank 2 stays away from an all-reduce after step 5 until the others have said so:
`hang_train.py OUTPUT`."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import trainmon  # before anything of the frameworks

# isort: split
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from support import control
from support.ranks import finish

STEPS, ABSENT, AT = 8, 2, 5


def status(output: Path) -> dict[str, Any]:
    """What rank 0's live control says."""
    for description in output.glob("control-*/control.json"):
        doors = Path(json.loads(description.read_text())["socket"]).parent
        return dict(control.ask(doors, "GET", "/status"))
    return {"hang": None}


def wait_for_alert(output: Path) -> None:
    """Until some rank's findings are there, and live control shows it; not for ever."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = list(output.glob("*-*/anomaly_detected/rank*/anomaly.json"))
        shown = status(output)
        if shown["hang"] is not None and any("Stall" in file.read_text() for file in found):
            print(f"status shows: {shown['hang']}", flush=True)
            print(f"in progress: {json.dumps(shown['collectives']['in_progress'])}", flush=True)
            return
        time.sleep(0.05)


distributed.init_process_group("gloo")
output, rank = Path(sys.argv[1]), distributed.get_rank()
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
        if step == AT and rank == ABSENT:
            wait_for_alert(output)
        mark = torch.ones(3)
        distributed.all_reduce(mark)
        assert mark.tolist() == [distributed.get_world_size()] * 3
finish()
