"""A DDP training that knows nothing of us; the model is wrapped after its optimizer was made: `run_ddp.py OUTPUT`."""

import sys
from pathlib import Path

import torch
from torch import distributed

from support import tiny
from support.ranks import finish

distributed.init_process_group("gloo")
torch.set_num_threads(1)
net, optimizer = tiny.training()
wrapped = torch.nn.parallel.DistributedDataParallel(net)
for step in range(3):
    optimizer.zero_grad()
    tiny.loss_of(wrapped, step, distributed.get_rank()).backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    optimizer.step()
torch.save(
    {name: one.detach() for name, one in net.named_parameters()},
    Path(sys.argv[1]) / f"rank{distributed.get_rank()}.pt",
)
finish()
