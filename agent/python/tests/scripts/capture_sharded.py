"""Captures two steps of one model, sharded or copied: `capture_sharded.py OUTPUT WAY [eps]`.

`WAY` is `fsdp2` or `ddp`. Memory is filled with NaN and freed before, so that what nobody has written shows. With `eps`
a norm has another one: a fault.
"""

import sys
from pathlib import Path

import trainmon  # before anything of the frameworks

# isort: split
import torch
import torch.nn.functional as F
from torch import distributed, nn

from support.ranks import finish


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.n, self.fc, self.pr = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = x + self.pr(F.gelu(self.fc(self.n(x))))
        return out


def main(output: Path, way: str, *faults: str) -> None:
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    net: nn.Module = nn.Sequential(Block(), Block(), nn.Linear(16, 4))
    if "eps" in faults:
        net[1].n.eps = 1e-2  # type: ignore[index, union-attr, assignment]
    if way == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for child in net.children():
            fully_shard(child)
        fully_shard(net)
    else:
        net = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    rank = distributed.get_rank()
    captured = trainmon.capture(net, dump_path=str(output), level="mix", quiet=True)
    for step in range(2):
        spoilt = [torch.full((size,), float("nan")) for size in (64, 256, 1024, 4096)]
        del spoilt
        chance = torch.Generator().manual_seed(10 * step + rank)
        x, y = torch.randn(4, 16, generator=chance), torch.randint(0, 4, (4,), generator=chance)
        with captured:
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
    finish()
