"""Operations of torch's backend for tests, `fake`, whose works have a class of their own; under DDP and without."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

import trainmon
from trainmon._trainmon import Collectives

RANKS, CALLS = 4, 3


def check_the_kernel_is_passed(x: torch.Tensor) -> None:
    """The kernel for DDP's own is spared a script's call where nothing else depends on the key it stands at."""
    group = distributed.group.WORLD
    assert group is not None
    key, sparse = torch._C.DispatchKey.ADInplaceOrView, torch.ones(4).to_sparse()

    def no_options() -> None:
        with suppress(TypeError):
            group.allreduce([x], "no options")
        with suppress(TypeError):
            group.allreduce([x, "no tensor"])

    calls: list[Callable[[], Any]] = [lambda: distributed.all_reduce(x), lambda: group.allreduce([sparse]), no_options]
    assert [reaches_the_kernel(call) for call in calls] == [False, True, False]
    assert not torch._C._dispatch_tls_is_dispatch_key_excluded(key), "the key is left out for the call alone"
    before = x._version
    x.add_(1)
    assert x._version == before + 1, "versions are counted"


def reaches_the_kernel(call: Callable[[], Any]) -> bool:
    entered: list[str] = []
    sys.setprofile(lambda frame, event, _: entered.append(frame.f_code.co_filename) if event == "call" else None)
    try:
        call()
    finally:
        sys.setprofile(None)
    return any(file.endswith("dispatched.py") for file in entered)


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
        else:
            check_the_kernel_is_passed(x)
        optimizer.step()
    assert [dict(vars(one)) for one in (group, *works)] == before, "everything is as it was"
    print("checked")


if __name__ == "__main__":
    main()
