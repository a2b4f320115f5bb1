"""The training of these nets."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812

from faults.trainer import Trainer

from .nets import CLASSES, NETS, WORDS, Columns, Elman, Flat, Mixer, Story, Sync, Wave

SEED = 311
SHAPES = {"mixer": (3, 4, 5), "wave": (3, 2, 8), "elman": (3, 3, 4), "flat": (24, 40)}


class Whole(Trainer):
    """One rank's run."""

    nets = NETS

    def __init__(self, setting: Any, rank: int) -> None:
        self.setting, self.rank, self.step = setting, rank, 0
        torch.manual_seed(SEED)
        self.net = self.build()
        self.optimizer = self.optimize()
        self.batches = []
        # Each rank's own before rank 0's is broadcast.
        self.temperature = torch.tensor([1.0 + rank, 2.0 + rank, 3.0 + rank])
        torch.manual_seed(SEED + 1 + rank)

    def build(self) -> Any:
        name = self.setting.net
        if name == "columns":
            return Columns(self.rank).train()
        kinds: dict[str, Any] = {"mixer": Mixer, "wave": Wave, "story": Story, "elman": Elman}
        kinds |= {"flat": Flat, "sync": Sync}
        return kinds[name]().train()

    def optimize(self) -> Any:
        parameters = list(self.net.parameters())
        if self.setting.optimizer == "adam":
            return torch.optim.Adam(parameters, lr=0.01, foreach=False)
        if self.setting.optimizer == "adagrad":
            return torch.optim.Adagrad(parameters, lr=0.02, eps=1e-8, foreach=False)
        if self.setting.optimizer == "sgd":
            return torch.optim.SGD(parameters, lr=0.05, momentum=0.7, weight_decay=0.02, foreach=False)
        return None

    def prepare(self) -> None:
        if self.setting.net == "sync":
            dist.broadcast(self.temperature, 0)

    def batch(self, step: int, micro: int) -> tuple[Any, Any]:
        net = self.setting.net
        own = self.rank if net == "sync" else 0
        generator = torch.Generator().manual_seed(SEED + 1000 * step + 100 * micro + 10 * own)
        if net == "story":
            tokens = torch.randint(0, WORDS, (2, 6), generator=generator)
            return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        shape = SHAPES.get(net, (4, 5))
        inputs = torch.randn(shape, generator=generator)
        return inputs, torch.randint(0, CLASSES, shape[:1], generator=generator)

    def loss(self, out: Any, labels: Any) -> Any:
        if self.setting.net == "sync":
            out = out * self.temperature
        return F.cross_entropy(out.reshape(-1, out.shape[-1]), labels.reshape(-1))

    def finish(self) -> None:
        if self.setting.net == "sync":
            for name, parameter in self.net.named_parameters():
                self.reduce(name, parameter.grad)
        if self.setting.clip:
            self.clip()
        if self.optimizer is not None:
            self.update()
