"""The training of these nets."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.distributed as dist

from faults.trainer import Trainer

from .nets import CLASSES, NETS, WORDS, Columns, Elman, Flat, Mixer, Story, Sync, Wave

SHAPES = {"mixer": (3, 4, 5), "wave": (3, 2, 8), "elman": (3, 3, 4), "flat": (24, 40)}


class Whole(Trainer):
    """One rank's run."""

    nets, seed = NETS, 311
    optimizers: ClassVar = {
        "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01, foreach=False),
        "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.02, eps=1e-8, foreach=False),
        "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.7, weight_decay=0.02, foreach=False),
    }
    reduced: ClassVar = {"sync"}

    def begin(self) -> None:
        # Each rank's own before rank 0's is broadcast.
        self.temperature = torch.tensor([1.0, 2.0, 3.0]) + self.rank

    def build(self) -> Any:
        name = self.setting.net
        if name == "columns":
            return Columns(self.rank).train()
        kinds: dict[str, Any] = {"mixer": Mixer, "wave": Wave, "story": Story, "elman": Elman}
        kinds |= {"flat": Flat, "sync": Sync}
        return kinds[name]().train()

    def prepare(self) -> None:
        if self.setting.net == "sync":
            dist.broadcast(self.temperature, 0)

    def batch(self, step: int, micro: int) -> tuple[Any, Any]:
        net = self.setting.net
        generator = self.generator(step, micro)
        if net == "story":
            tokens = torch.randint(0, WORDS, (2, 6), generator=generator)
            return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        shape = SHAPES.get(net, (4, 5))
        inputs = torch.randn(shape, generator=generator)
        return inputs, torch.randint(0, CLASSES, shape[:1], generator=generator)

    def loss(self, out: Any, labels: Any) -> Any:
        if self.setting.net == "sync":
            out = out * self.temperature
        return self.entropy(out, labels)
