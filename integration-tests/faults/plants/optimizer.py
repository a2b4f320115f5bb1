"""Faults between the gradients and the new parameters."""

from __future__ import annotations

from typing import Any

import torch

from faults.case import Case, Plant, Setting, Truth
from faults.kernels import aten
from faults.trainer import Trainer

ADAM = Setting("mlp", optimizer="adamw")
SGD = Setting("mlp", optimizer="sgd", steps=2)


def option(name: str, value: Any) -> Plant:
    """Sets a number of the optimizer's only group."""

    def plant(run: Trainer) -> None:
        run.optimizer.param_groups[0][name] = value

    return plant


class Uncorrected(torch.optim.Optimizer):
    """AdamW with the operators of torch's, but for the correction of the moments."""

    def __init__(self, like: Any) -> None:
        super().__init__(like.param_groups[0]["params"], dict(like.defaults))

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        del closure
        group = self.param_groups[0]
        (beta1, beta2), rate = group["betas"], group["lr"]
        for parameter in group["params"]:
            state = self.state[parameter]
            if not state:
                state.update(
                    step=torch.tensor(0.0), first=torch.zeros_like(parameter), second=torch.zeros_like(parameter)
                )
            state["step"] += 1
            parameter.mul_(1 - rate * group["weight_decay"])
            state["first"].lerp_(parameter.grad, 1 - beta1)
            state["second"].mul_(beta2).addcmul_(parameter.grad, parameter.grad, value=1 - beta2)
            bound = (state["second"].sqrt() / 1.0).add_(group["eps"])
            parameter.addcdiv_(state["first"], bound, value=-rate)


def uncorrected(run: Trainer) -> None:
    run.optimizer = Uncorrected(run.optimizer)


class Scaled(Trainer):
    """Forgets that the loss was scaled."""

    def unscale(self) -> None:
        return


class Stale(Trainer):
    """Puts one parameter back after the update, unseen."""

    def update(self) -> None:
        weight = self.net.fc2.weight.data
        before = aten.clone(weight)
        super().update()
        if self.step == 0:
            aten.copy_(weight, before)


class Unclipped(Trainer):
    def clip(self) -> None:
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.setting.clip * 4)


class PastGradient(Trainer):
    """Does not forget the last step's gradient."""

    def prepare(self) -> None:
        super().prepare()
        for parameter, old in zip(self.net.parameters(), self.old, strict=True):
            parameter.grad = old

    def load(self, step: int) -> None:
        super().load(step)
        self.old = [None if parameter.grad is None else parameter.grad.clone() for parameter in self.net.parameters()]


def _truth(operators: tuple[str, ...], what: str, **other: Any) -> Truth:
    known: dict[str, Any] = {
        "phase": "optimizer",
        "verdict": "operator",
        "operators": operators,
        "modules": (),
        "what": what,
    }
    return Truth(**known | other)


CASES = (
    Case(
        "adam_beta1_l1",
        Setting("mlp", optimizer="adamw", level="L1"),
        _truth(("Tensor.lerp_.0.forward",), "beta1 is 0.8, not 0.9: the weight of lerp_; level L1"),
        option("betas", (0.8, 0.999)),
    ),
    Case(
        "adam_beta1",
        ADAM,
        _truth(("Tensor.lerp_.0.forward",), "beta1 is 0.8, not 0.9: the weight of lerp_"),
        option("betas", (0.8, 0.999)),
    ),
    Case(
        "adam_beta2",
        ADAM,
        _truth(
            ("Tensor.mul_.1.forward", "Tensor.addcmul_.0.forward"),
            "beta2 is 0.99, not 0.999: the factor of mul_ on a moment that is still zero, then addcmul_'s value",
        ),
        option("betas", (0.9, 0.99)),
    ),
    Case(
        "adam_learning_rate",
        ADAM,
        _truth(("Tensor.mul_.0.forward",), "lr is 0.02, not 0.01: the weight decay's factor is the first that has it"),
        option("lr", 0.02),
    ),
    Case(
        "adam_weight_decay",
        ADAM,
        _truth(("Tensor.mul_.0.forward",), "weight_decay is 0.2, not 0.1: the factor of mul_"),
        option("weight_decay", 0.2),
    ),
    Case(
        "adam_eps",
        ADAM,
        _truth(("Tensor.add_.0.forward",), "eps is 1e-4, not 1e-8: add_'s number"),
        option("eps", 1e-4),
    ),
    Case(
        "adam_bias_correction",
        ADAM,
        _truth(("Tensor.__truediv__.0.forward",), "the moments are not corrected for their start at zero"),
        uncorrected,
    ),
    Case(
        "sgd_learning_rate",
        SGD,
        _truth(("Tensor.add_.0.forward",), "lr is 0.2, not 0.1: add_'s alpha"),
        option("lr", 0.2),
    ),
    Case(
        "sgd_momentum",
        SGD,
        _truth(("Tensor.mul_.0.forward",), "momentum is 0.8, not 0.9: it is first used in step 1", step=1),
        option("momentum", 0.8),
    ),
    Case(
        "parameter_stale",
        SGD,
        _truth(
            ("Functional.linear.1.forward",),
            "fc2.weight is put back after step 0's update, unseen: step 1 begins with the old one",
            phase="forward",
            verdict="parameter",
            modules=("Module.fc2.Linear.forward.0",),
            step=1,
        ),
        trainer=Stale,
    ),
    Case(
        "loss_scale_not_undone",
        Setting("mlp", optimizer="sgd", loss_scale=8.0),
        _truth(
            ("Tensor.mul_.0.forward", "Tensor.add_.0.forward"),
            "gradients keep the scale of the loss: the eight mul_ are missing in target, add_ gets eightfold gradients",
        ),
        trainer=Scaled,
    ),
    Case(
        "clip_norm",
        Setting("mlp", optimizer="sgd", clip=0.1),
        _truth(
            ("Tensor.__mul__.0.forward",), "gradients are clipped to 0.4, not 0.1: the number the inverse norm is times"
        ),
        trainer=Unclipped,
    ),
    Case(
        "gradient_not_forgotten",
        SGD,
        _truth(
            ("Module.head.Linear.parameters_grad.0",),
            "step 1 adds to step 0's gradients",
            phase="parameter_gradient",
            step=1,
        ),
        trainer=PastGradient,
    ),
)
