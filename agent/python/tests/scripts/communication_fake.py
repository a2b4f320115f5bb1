"""Operations of torch's backend for tests, `fake`, whose works have a class of their own; under DDP and without."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

import trainmon
from trainmon._trainmon import Collectives

RANKS, CALLS = 4, 3


def main() -> None:
    output, sort = Path(sys.argv[1]), sys.argv[2]
    distributed.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    group, work = distributed.ProcessGroup, distributed.Work
    works = [work, *work.__subclasses__()]
    before = [dict(vars(one)) for one in (group, *works)]
    model: torch.nn.Module = torch.nn.Linear(4, 4)
    if sort == "ddp":
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    config = {"cc_distribution": {"enable": True}, "ops": ["norm"], "format": "csv", "journal": {"enabled": True}}
    with trainmon.watch(model, optimizer, config=config, output_dir=str(output)):
        original, ours = before[0]["allreduce"], vars(group)["allreduce"]
        assert ours is not original and group.allreduce.__name__ == original.__name__ == "allreduce"
        x, parts = torch.ones(4), [torch.zeros(4) for _ in range(RANKS)]
        for _ in range(CALLS):
            assert distributed.all_reduce(x) is None
            distributed.all_gather(parts, x)
            handle = distributed.all_reduce(x, async_op=True)
            assert type(handle) in works and handle.wait() is True
        assert not Collectives.is_inside()
        if sort == "plain":
            # The reducer of DDP asks a future for what this backend does not give.
            model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
    assert [dict(vars(one)) for one in (group, *works)] == before, "everything is as it was"
    print("checked")


if __name__ == "__main__":
    main()
