"""The training of the held-out nets."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.distributed as dist

from faults.trainer import Trainer

from .nets import CLASSES, NETS, VOCABULARY, Gru, Llama, Lstm, ResNet, Vae

BATCH = 6


class HeldOut(Trainer):
    """One rank's run."""

    nets, seed = NETS, 77
    optimizers: ClassVar = {
        "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, foreach=False),
        "amsgrad": lambda parameters: torch.optim.Adam(parameters, lr=0.01, amsgrad=True, foreach=False),
        "nesterov": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True, foreach=False),
        "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.8, foreach=False),
    }
    reduced: ClassVar = {"ep", "bucket"}

    def begin(self) -> None:
        self.options: dict[str, Any] = {}

    def build(self) -> Any:
        name = self.setting.net
        if name in {"vp", "ep"}:
            from . import parallel

            return (parallel.Vocabulary if name == "vp" else parallel.Experts)(self.rank).train()
        if name == "llama":
            return Llama(0.0, recomputed=False).to(torch.bfloat16).train()
        if name == "ckpt":
            return Llama(self.setting.dropout, recomputed=True).train()
        kinds: dict[str, Any] = {"gru": Gru, "lstm": Lstm, "bucket": Lstm, "resnet": ResNet, "vae": Vae}
        net = kinds[name]()
        return (net.double() if name == "vae" else net).train()

    def accumulate(self, inputs: Any, labels: Any) -> None:
        if self.setting.net == "vp":
            loss = self.net(inputs, labels)
        elif self.setting.net == "vae":
            loss = self.net(inputs)
        else:
            loss = self.loss(self.net(inputs), labels)
        self.backward(loss)

    def batch(self, step: int, micro: int) -> tuple[Any, Any]:
        net = self.setting.net
        generator = self.generator(step, micro)
        if net in {"gru", "llama", "ckpt"}:
            tokens = torch.randint(0, VOCABULARY, (3, 5 if net != "gru" else 4), generator=generator)
            labels = torch.randint(0, VOCABULARY, (3, 5), generator=generator)
            return tokens, labels % CLASSES if net == "gru" else labels
        shapes = {"resnet": (3, 3, 9, 9), "vae": (BATCH, 13), "lstm": (BATCH, 4, 9), "bucket": (BATCH, 4, 9)}
        inputs = torch.randn(shapes.get(net, (BATCH, 9)), generator=generator)
        labels = torch.randint(0, 12 if net == "vp" else CLASSES, inputs.shape[:1], generator=generator)
        return inputs.double() if net == "vae" else inputs, labels

    def loss(self, out: Any, labels: Any) -> Any:
        if self.setting.net == "gru":
            labels = labels[:, 0]
        options = {"label_smoothing": 0.1} if self.setting.net == "resnet" else {}
        return self.entropy(out, labels, **options | self.options)

    def finish(self) -> None:
        if self.setting.net == "bucket":
            self.reduce_together()
        if self.optimizer is not None:
            self.update()

    def flat(self) -> Any:
        """All gradients, one behind the other."""
        return torch.cat([self.gradient(name, one.grad).reshape(-1) for name, one in self.net.named_parameters()])

    def gradient(self, name: str, gradient: Any) -> Any:
        """What goes into the bucket."""
        del name
        return gradient

    def reduce_together(self) -> None:
        """The mean over ranks of all gradients at once."""
        flat = self.flat()
        dist.all_reduce(flat)
        self.mean(flat)
        self.spread(flat)

    def mean(self, flat: Any) -> None:
        """From the sum."""
        flat.div_(self.setting.ranks)

    def spread(self, flat: Any) -> None:
        """Back to where the optimizer reads them; not recorded."""
        aten, start = torch.ops.aten, 0
        for parameter in self.net.parameters():
            part = aten.as_strided(flat, parameter.shape, parameter.stride(), start)
            aten.copy_(parameter.grad, part)
            start += parameter.numel()
