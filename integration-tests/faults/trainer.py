"""The training loop. Every step of it is a method, so that a fault may replace one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812

from .nets import CLASSES, VOCABULARY, ConvNet, Gpt, Mlp

if TYPE_CHECKING:
    from collections.abc import Callable

    from .case import Setting

SEED = 20
BATCH = 4
TIME = 6
SHAPES: dict[str, tuple[int, ...]] = {"conv": (BATCH, 3, 8, 8), "wideconv": (8, 3, 32, 32), "wide": (256, 12)}


class Trainer:
    """One rank's run. Other nets have a trainer of their own, which says what is different with them."""

    seed = SEED
    optimizers: ClassVar[dict[str, Callable[[list[Any]], Any]]] = {
        "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=False),
        "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1, foreach=False),
    }
    reduced: ClassVar[set[str]] = {"dp", "dpgpt"}
    """The nets whose gradients are averaged over ranks that have data of their own."""

    def __init__(self, setting: Setting, rank: int) -> None:
        self.setting = setting
        self.rank = rank
        self.step = 0
        torch.manual_seed(self.seed)
        self.net = self.build()
        self.optimizer = self.optimize()
        self.batches: list[tuple[Any, Any]] = []
        self.begin()
        torch.manual_seed(self.seed + 1 + rank)

    def begin(self) -> None:
        """What there is beside the net and its optimizer."""
        # Each rank's own before rank 0's is broadcast.
        self.weights = 1.0 + 0.25 * torch.arange(BATCH) + self.rank

    def build(self) -> Any:
        """The net, the same on all ranks or this rank's part of it."""
        net: Any = None
        if self.setting.net in {"mlp", "dp", "wide"}:
            net = Mlp(self.setting.dropout, 256 if self.setting.net == "wide" else 16)
        elif self.setting.net in {"conv", "wideconv"}:
            net = ConvNet(8 if self.setting.net == "wideconv" else 1)
        elif self.setting.net in {"gpt", "tied", "dpgpt"}:
            net = Gpt(self.setting.dropout)
            if self.setting.net == "tied":
                net.head.weight = net.tokens.weight
        else:
            from . import parallel

            net = parallel.Cut() if self.setting.net == "tp" else parallel.Stage()
        return net.train()

    def optimize(self) -> Any:
        """The optimizer, if the setting has one."""
        make = self.optimizers.get(self.setting.optimizer)
        return None if make is None else make([one for one in self.net.parameters() if one.requires_grad])

    def load(self, step: int) -> None:
        """Gets a step's batches, which is not recorded."""
        self.step = step
        self.batches = [self.batch(step, micro) for micro in range(self.setting.micro)]

    def train(self) -> None:
        """One step: what is recorded."""
        for parameter in self.net.parameters():
            parameter.grad = None
        self.prepare()
        for inputs, labels in self.batches:
            self.accumulate(inputs, labels)
        self.finish()

    def prepare(self) -> None:
        """What the ranks agree upon before a step."""
        if self.setting.net == "dp":
            dist.broadcast(self.weights, 0)

    def accumulate(self, inputs: Any, labels: Any) -> None:
        """Forward and backward of one micro-batch."""
        if self.setting.net == "stages":
            self.pipe(inputs, labels)
            return
        self.backward(self.divide(self.loss(self.net(inputs), labels)))

    def pipe(self, inputs: Any, labels: Any) -> None:
        """The same of a net cut into stages."""
        if self.rank == 0:
            out = self.net(inputs)
            dist.send(out.detach(), 1)
            gradient = torch.empty_like(out)
            dist.recv(gradient, 1)
            out.backward(gradient)
            return
        hidden = torch.empty(BATCH, 16)
        dist.recv(hidden, 0)
        hidden = self.received(hidden).requires_grad_()
        self.backward(self.loss(self.net(hidden), labels))
        dist.send(self.returned(hidden), 0)

    def received(self, hidden: Any) -> Any:
        """The second stage's input."""
        return hidden

    def returned(self, hidden: Any) -> Any:
        """What the second stage sends back."""
        return hidden.grad

    def batch(self, step: int, micro: int) -> tuple[Any, Any]:
        """The inputs and labels: other ones for each step, micro-batch and data-parallel rank."""
        generator = self.generator(step, micro)
        if self.setting.net in {"gpt", "tied", "dpgpt"}:
            tokens = torch.randint(1, VOCABULARY, (BATCH // 2, TIME + 1), generator=generator)
            # A padding token, so that what padding_idx does shows.
            tokens.view(-1)[3] = 0
            return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        shape = SHAPES.get(self.setting.net, (BATCH, 12))
        inputs = torch.randn(shape, generator=generator) * self.setting.gain
        return inputs, torch.randint(0, CLASSES, shape[:1], generator=generator)

    def generator(self, step: int, micro: int) -> torch.Generator:
        """Where the numbers of a batch come from."""
        own = self.rank if self.setting.net in self.reduced else 0
        return torch.Generator().manual_seed(self.seed + 1000 * step + 100 * micro + 10 * own)

    def loss(self, out: Any, labels: Any) -> Any:
        """The mean over the batch; data-parallel ranks weigh their samples."""
        if self.setting.net == "dp":
            return (F.cross_entropy(out, labels, reduction="none") * self.weights).mean()
        return self.entropy(out, labels)

    @staticmethod
    def entropy(out: Any, labels: Any, **options: Any) -> Any:
        """Over all positions."""
        return F.cross_entropy(out.reshape(-1, out.shape[-1]), labels.reshape(-1), **options)

    def divide(self, loss: Any) -> Any:
        """What the micro-batches are summed up with."""
        return loss / self.setting.micro if self.setting.micro > 1 else loss

    def backward(self, loss: Any) -> None:
        """Backward of the scaled loss."""
        if self.setting.loss_scale != 1.0:
            loss = loss * self.setting.loss_scale
        loss.backward()

    def finish(self) -> None:
        """From the gradients to the new parameters."""
        if self.setting.net in self.reduced:
            for name, parameter in self.net.named_parameters():
                self.reduce(name, parameter.grad)
        if self.setting.loss_scale != 1.0:
            self.unscale()
        if self.setting.clip:
            self.clip()
        if self.optimizer is not None:
            self.update()

    def reduce(self, name: str, gradient: Any) -> None:
        """The mean of a gradient over ranks, in place."""
        del name
        dist.all_reduce(gradient)
        gradient.div_(self.setting.ranks)

    def unscale(self) -> None:
        """Undoes the scale of the loss."""
        for parameter in self.net.parameters():
            parameter.grad.mul_(1.0 / self.setting.loss_scale)

    def clip(self) -> None:
        """Bounds the norm of the gradient."""
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.setting.clip)

    def update(self) -> None:
        """The optimizer's step."""
        self.optimizer.step()
