"""The training of these nets, with every optimizer and what can stand between a loss and a gradient."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812

from faults.trainer import Trainer

from .nets import CLASSES, NETS, VOCABULARY, WIDTH, Deep, Gated, Gpt, Lora, Norms, Plain, Stage

UNSEEN = "unseen_"
"""An optimizer with this in front of its name runs between the steps that are recorded."""

OPTIMIZERS: dict[str, Any] = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1, foreach=False),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.003, foreach=False),
    "many": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, foreach=True),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.003, foreach=False),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.02, foreach=False),
    "nadam": lambda parameters: torch.optim.NAdam(parameters, lr=0.005, foreach=False),
    "amsgrad": lambda parameters: torch.optim.Adam(parameters, lr=0.005, amsgrad=True, foreach=False),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=False),
    "descent": lambda parameters: torch.optim.SGD(parameters, lr=0.05, foreach=False),
}


def grouped(parameters: Any) -> Any:
    """AdamW as it is by default, but that vectors do not decay."""
    groups = [
        {"params": [one for one in parameters if one.dim() > 1]},
        {"params": [one for one in parameters if one.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.001, weight_decay=0.01, foreach=False)


OPTIMIZERS["grouped"] = grouped


class Machines(Trainer):
    """One rank's run."""

    nets, seed = NETS, 311
    reduced: ClassVar = {"ddp"}

    def begin(self) -> None:
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0) if self.setting.net == "half" else None

    def build(self) -> Any:
        name = self.setting.net
        if name.startswith("fused"):
            return Gpt(2 if name == "fused2" else 1).train()
        if name.startswith("pipe"):
            return Stage(self.rank, self.setting.ranks).train()
        if name == "ddp":
            return torch.nn.parallel.DistributedDataParallel(Deep().train(), bucket_cap_mb=25)
        kinds: dict[str, Any] = {"norms": Norms, "lora": Lora, "plain": Plain, "whole": Plain, "gated": Gated}
        return kinds.get(name, Deep)().train()

    def optimize(self) -> Any:
        parameters = [one for one in self.net.parameters() if one.requires_grad]
        name = self.setting.optimizer.removeprefix(UNSEEN)
        return OPTIMIZERS[name](parameters) if name in OPTIMIZERS else None

    @property
    def is_unseen(self) -> bool:
        """Whether the optimizer runs where nobody records."""
        return bool(self.setting.optimizer.startswith(UNSEEN))

    def load(self, step: int) -> None:
        if step > 0 and self.is_unseen:
            self.update()
        super().load(step)

    def finish(self) -> None:
        if self.setting.clip:
            self.clip()
        if self.optimizer is not None and not self.is_unseen:
            self.update()

    def update(self) -> None:
        if self.scaler is None:
            self.optimizer.step()
            return
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def accumulate(self, inputs: Any, labels: Any) -> None:
        if self.setting.net.startswith("pipe"):
            self.pipe(inputs, labels)
            return
        dtype = {"half": torch.float16, "brain": torch.bfloat16, "fused_brain": torch.bfloat16}.get(self.setting.net)
        if dtype is None:
            loss = self.loss(self.net(inputs), labels)
        else:
            with torch.autocast("cpu", dtype=dtype):
                loss = self.loss(self.net(inputs), labels)
        self.backward(self.divide(loss))

    def backward(self, loss: Any) -> None:
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()

    def loss(self, out: Any, labels: Any) -> Any:
        return F.cross_entropy(out.reshape(-1, out.shape[-1]).float(), labels.reshape(-1))

    def pipe(self, inputs: Any, labels: Any) -> None:
        """One stage of the pipeline: forward down the ranks, gradients back up."""
        last = self.setting.ranks - 1
        if self.rank > 0:
            inputs = torch.empty(8, WIDTH)
            dist.recv(inputs, self.rank - 1)
            inputs.requires_grad_()
        out = self.net(inputs)
        if self.rank == last:
            self.backward(self.loss(out, labels))
        else:
            dist.send(out.detach(), self.rank + 1)
            gradient = torch.empty_like(out)
            dist.recv(gradient, self.rank + 1)
            out.backward(self.received(gradient))
        if self.rank > 0:
            dist.send(self.returned(inputs), self.rank - 1)

    def batch(self, step: int, micro: int) -> tuple[Any, Any]:
        generator = self.generator(step, micro)
        if self.setting.net.startswith("fused"):
            tokens = torch.randint(0, VOCABULARY, (8, 17), generator=generator)
            return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        shape = (
            (8, 3, 12, 12) if self.setting.net == "norms" else (8 if self.setting.net.startswith("pipe") else 32, 48)
        )
        inputs = torch.randn(shape, generator=generator)
        return inputs, torch.randint(0, CLASSES, shape[:1], generator=generator)
