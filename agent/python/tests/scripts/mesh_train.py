"""Trains one net in one process, or over torch's own device meshes: `mesh_train.py OUTPUT CASE [FLIPPED]`.

`CASE` is `single`, or the dimensions of a mesh from the outermost on, each with its number of ranks, `pp2.fsdp2`: `pp`
(stages of torch's pipelining), `ddp`, `fsdp` (`fully_shard`), `tp` and `sp` (`parallelize_module`; of `sp` with norms
that are `SequenceParallel`). Ranks of `ddp` and `fsdp` share the batch. With `.groups` behind it the loop does all that
by hand, and gives the groups to the watch. `FLIPPED`: before step 3 a bit of this parameter is flipped on the last
rank.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import trainmon
from support import layered
from support.flips import flip
from support.layered import Layered
from support.ranks import finish

STEPS, LENGTH, WIDTH = 4, 4, 16
CONFIG: dict[str, Any] = {**layered.CONFIG, "replica_interval": 1}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(WIDTH)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.fc2(torch.tanh(self.fc1(self.ln(x))))


class ByHand(nn.Module):
    """A block whose ranks of a group have a part of its inner width each."""

    def __init__(self, block: Block, group: Any) -> None:
        super().__init__()
        rank, ranks = distributed.get_rank(group), distributed.get_world_size(group)
        self.ln, self.fc1, self.fc2, self._group = block.ln, block.fc1, block.fc2, group
        for layer, name, dim in ((self.fc1, "weight", 0), (self.fc1, "bias", 0), (self.fc2, "weight", 1)):
            part = nn.Parameter(getattr(layer, name).detach().chunk(ranks, dim)[rank].clone())
            part.tensor_model_parallel, part.partition_dim = True, dim  # type: ignore[attr-defined]
            setattr(layer, name, part)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = torch.tanh(self.fc1(Split.apply(self.ln(x), self._group)))
        return x + Joined.apply(nn.functional.linear(inner, self.fc2.weight), self._group) + self.fc2.bias


class Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        distributed.all_reduce(whole := grads[0].clone(), group=ctx.group)
        return whole, None


class Joined(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        distributed.all_reduce(whole := x.clone(), group=group)
        return whole

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return grads[0], None


def parallel(net: Layered, mesh: DeviceMesh) -> nn.Module:
    names = mesh.mesh_dim_names or ()
    if "tp" in names:
        for layer in net.layers.values():
            parallelize_module(layer, mesh["tp"], {"fc1": ColwiseParallel(), "fc2": RowwiseParallel()})
    if "sp" in names:
        plan = {"ln": SequenceParallel(), "fc1": ColwiseParallel(input_layouts=Shard(1)), "fc2": RowwiseParallel()}
        for layer in net.layers.values():
            layer.ln.register_forward_pre_hook(lambda _module, given: (sharded(given[0], mesh["sp"]),))
            parallelize_module(layer, mesh["sp"], plan)
    if "fsdp" in names:
        for layer in net.layers.values():
            fully_shard(layer, mesh=mesh["fsdp"])
        return fully_shard(net, mesh=mesh["fsdp"])
    return DistributedDataParallel(net, process_group=mesh["ddp"].get_group()) if "ddp" in names else net


def sharded(x: torch.Tensor, mesh: DeviceMesh) -> torch.Tensor:
    """What all ranks have, along the sequence."""
    return DTensor.from_local(x, mesh, [Replicate()]).redistribute(placements=[Shard(1)])


class Loop:
    """The steps of a net over a mesh."""

    def __init__(self, mesh: DeviceMesh, by_hand: bool) -> None:
        self.names = mesh.mesh_dim_names or ()
        self.mesh, self.by_hand = mesh, by_hand
        data = next((name for name in self.names if name in ("ddp", "fsdp")), None)
        self.data = None if data is None else mesh[data]
        net = Layered(Block)
        if "pp" in self.names:
            net.keep_stage(mesh["pp"].get_local_rank(), mesh["pp"].size())
        if by_hand:
            for place, block in list(net.layers.items()):
                net.layers[place] = ByHand(block, mesh["tp"].get_group())
            self.model: nn.Module = net
        else:
            self.model = parallel(net, mesh)

    def part(self, batch: torch.Tensor) -> torch.Tensor:
        return batch if self.data is None else batch.chunk(self.data.size())[self.data.get_local_rank()]

    def make_stage(self) -> None:
        """After the watch: a script may do so."""
        from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

        pipeline = self.mesh["pp"]
        self.is_first = pipeline.get_local_rank() == 0
        self.is_last = pipeline.get_local_rank() == pipeline.size() - 1
        stage = PipelineStage(
            self.model,
            pipeline.get_local_rank(),
            pipeline.size(),
            torch.device("cpu"),
            group=pipeline.get_group(),
        )
        # torch's stages do not tell DDP which micro-batch is the last one that it sees.
        micro_batches = 1 if "ddp" in self.names else layered.MICRO_BATCHES
        self.schedule = ScheduleGPipe(stage, micro_batches, loss_fn=nn.functional.mse_loss)

    def step(self, watch: trainmon.Watch, x: torch.Tensor, y: torch.Tensor) -> None:
        x, y = self.part(x), self.part(y)
        if "pp" in self.names:
            losses: list[torch.Tensor] = []
            inputs, target = (x,) if self.is_first else (), {"target": y, "losses": losses} if self.is_last else {}
            self.schedule.step(*inputs, **target)
            if losses:
                watch.log(loss=torch.stack(losses).mean())
            return
        for part, target in layered.micro_batches(x, y):
            layered.backward(self.model(part), target)
        if self.by_hand and self.data is not None:
            for one in self.model.parameters():
                assert one.grad is not None
                distributed.all_reduce(one.grad, group=self.data.get_group())
                one.grad /= self.data.size()

    def groups(self) -> dict[str, Any]:
        if not self.by_hand:
            return {}
        names = {"tp_group": "tp", "dp_group": "ddp"}
        return {key: self.mesh[name].get_group() for key, name in names.items() if name in self.names}


def over_mesh(case: str, output: Path, flipped: str | None) -> None:
    by_hand = case.endswith(".groups")
    dims = re.findall(r"([a-z]+)(\d+)", case)
    mesh = init_device_mesh("cpu", tuple(int(size) for _, size in dims), mesh_dim_names=tuple(name for name, _ in dims))
    loop = Loop(mesh, by_hand)
    optimizer = torch.optim.AdamW(loop.model.parameters(), lr=1e-2, foreach=False)
    config = {**CONFIG, "alert": {"dump": True}}
    with trainmon.watch(
        loop.model, optimizer, config=config, output_dir=str(output), name="run", **loop.groups()
    ) as watch:
        if "pp" in loop.names:
            loop.make_stage()
        for step, (x, y) in enumerate(layered.batches(STEPS, 8, LENGTH, WIDTH)):
            optimizer.zero_grad()
            if step == 3 and flipped and distributed.get_rank() == distributed.get_world_size() - 1:
                flip(next(one for name, one in loop.model.named_parameters() if name.endswith(flipped)))
            loop.step(watch, x, y)
            optimizer.step()


def main(output: Path, case: str, flipped: str | None = None) -> None:
    if case == "single":
        layered.alone(Layered(Block), layered.batches(STEPS, 8, LENGTH, WIDTH), output, CONFIG, foreach=False)
        return
    distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    over_mesh(case, output, flipped)
    finish()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
