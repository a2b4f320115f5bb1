"""Operations of torch's backend for tests, `fake`, whose works have a class of their own; under DDP and without."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

import trainmon
from trainmon._trainmon import Collectives

RANKS, CALLS = 4, 3


def check_the_kernels_are_passed(x: torch.Tensor) -> None:
    """A script's call is spared the kernels for DDP's own, where nothing else depends on the keys they stand at."""
    group = distributed.group.WORLD
    assert group is not None
    key, sparse = torch._C.DispatchKey.ADInplaceOrView, torch.ones(4).to_sparse()

    def no_options() -> None:
        with suppress(TypeError):
            group.allreduce([x], "no options")
        with suppress(TypeError):
            group.allreduce([x, "no tensor"])

    calls: list[Callable[[], Any]] = [lambda: distributed.all_reduce(x), lambda: group.allreduce([sparse]), no_options]
    calls.append(lambda: distributed.broadcast(x, 0))
    assert [reaches_the_kernels(call) for call in calls] == [False, True, False, False]
    assert not torch._C._dispatch_tls_is_dispatch_key_excluded(key), "the key is left out for the call alone"
    before = x._version
    x.add_(1)
    assert x._version == before + 1, "versions are counted"


def reaches_the_kernels(call: Callable[[], Any]) -> bool:
    entered: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            entered.append((Path(frame.f_code.co_filename).name, frame.f_code.co_name))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return ("dispatched.py", "kernel") in entered


def main() -> None:
    output, sort = Path(sys.argv[1]), sys.argv[2]
    distributed.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    group, work = distributed.ProcessGroup, distributed.Work
    works = [work, *work.__subclasses__()]
    before = [dict(vars(one)) for one in (group, *works)]
    model: torch.nn.Module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
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
            model(torch.ones(2, 4)).sum().backward()
        else:
            check_the_kernels_are_passed(x)
            with torch.inference_mode():
                assert reaches_the_kernels(lambda: model(torch.ones(2, 4))), "DDP spreads its buffers"
        optimizer.step()
    assert [dict(vars(one)) for one in (group, *works)] == before, "everything is as it was"
    print("checked")


if __name__ == "__main__":
    main()
