"""The ways of training in parallel that are tested, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.parallel import DistributedDataParallel

from support import tiny
from support.parallel import CLIP, Way

Wrap = Callable[[nn.Module], nn.Module]

CPU = torch.device("cpu")


def ddp(**options: Any) -> Wrap:
    return lambda net: DistributedDataParallel(net, **options)


def fsdp1(**options: Any) -> Wrap:
    options = {"use_orig_params": True, "auto_wrap_policy": ModuleWrapPolicy({tiny.Block}), "device_id": CPU} | options
    return lambda net: FullyShardedDataParallel(net, **options)


def fsdp2(**options: Any) -> Wrap:
    def wrap(net: nn.Module) -> nn.Module:
        for layer in net.layers:
            fully_shard(layer, **options)
        return fully_shard(net, **options)

    return wrap


def compiled_ddp(net: nn.Module) -> nn.Module:
    return torch.compile(DistributedDataParallel(net), backend="aot_eager")  # type: ignore[no-any-return]


def compiled_fsdp2(net: nn.Module) -> nn.Module:
    for layer in net.layers:  # type: ignore[union-attr]
        layer.compile(backend="aot_eager")
    return fsdp2()(net)


def clip_of_fsdp1(model: nn.Module) -> torch.Tensor:
    return model.clip_grad_norm_(CLIP)


SMALL: dict[str, Any] = {"bucket_cap_mb": 0.05}
WAYS: dict[str, Callable[[], Way]] = {
    "ddp": lambda: Way(ddp(**SMALL)),
    "ddp_view": lambda: Way(ddp(gradient_as_bucket_view=True, static_graph=True, **SMALL)),
    "ddp_accumulating": lambda: Way(ddp(**SMALL), 2, defers=True),
    "ddp_reducing_twice": lambda: Way(ddp(**SMALL), 2),
    "ddp_compiled": lambda: Way(compiled_ddp),
    "fsdp1": lambda: Way(fsdp1(), clip=clip_of_fsdp1),
    "fsdp1_flat": lambda: Way(fsdp1(use_orig_params=False), clip=clip_of_fsdp1),
    "fsdp1_accumulating": lambda: Way(fsdp1(), 2, defers=True, clip=clip_of_fsdp1),
    "fsdp1_reducing_twice": lambda: Way(fsdp1(), 2, clip=clip_of_fsdp1),
    "fsdp1_unsharded": lambda: Way(fsdp1(sharding_strategy=ShardingStrategy.NO_SHARD), clip=clip_of_fsdp1),
    "fsdp1_hybrid": lambda: Way(
        fsdp1(sharding_strategy=ShardingStrategy.HYBRID_SHARD, device_mesh=mesh()), clip=clip_of_fsdp1
    ),
    "fsdp2": lambda: Way(fsdp2(), reports_norm=False),
    "fsdp2_compiled": lambda: Way(compiled_fsdp2, reports_norm=False),
    "fsdp2_kept": lambda: Way(fsdp2(reshard_after_forward=False), reports_norm=False),
    "fsdp2_accumulating": lambda: Way(fsdp2(), 2, defers=True, reports_norm=False),
    "fsdp2_reducing_twice": lambda: Way(fsdp2(), 2, reports_norm=False),
    "fsdp2_hybrid": lambda: Way(fsdp2(mesh=mesh()), reports_norm=False),
}


def mesh() -> DeviceMesh:
    return init_device_mesh("cpu", (2, distributed.get_world_size() // 2), mesh_dim_names=("replicate", "shard"))
