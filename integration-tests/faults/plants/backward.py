"""Faults of the backward pass: what goes forward agrees."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from faults.case import Case, Setting, Truth
from faults.kernels import aten, wrong_gradient
from faults.trainer import Trainer

from .forward_kernels import kernel

MLP = Setting("mlp")
GPT = Setting("gpt")


def gelu_doubled(incoming: Any, inputs: Any, out: Any) -> Any:
    del out
    return aten.mul.Scalar(aten.gelu_backward(incoming, inputs), 2.0)


def silu_without_product(incoming: Any, inputs: Any, out: Any) -> Any:
    del out
    return aten.mul.Tensor(incoming, aten.sigmoid(inputs))


def softmax_without_sum(incoming: Any, inputs: Any, out: Any) -> Any:
    del inputs
    return aten.mul.Tensor(incoming, out)


def tanh_of_wrong_side(incoming: Any, inputs: Any, out: Any) -> Any:
    """Differentiates at the input instead of at the output."""
    del out
    return aten.tanh_backward(incoming, inputs)


def relu_leaks(incoming: Any, inputs: Any, out: Any) -> Any:
    del inputs, out
    return aten.clone(incoming)


def doubled_between(run: Trainer) -> None:
    def merge(hidden: Any, branch: Any) -> Any:
        total = hidden + branch
        total.register_hook(lambda gradient: aten.mul.Scalar(gradient, 2.0))
        return total

    run.net.merge = merge


def parameter_halved(run: Trainer) -> None:
    run.net.fc2.weight.register_hook(lambda gradient: aten.mul.Scalar(gradient, 0.5))


def weight_zeroed(run: Trainer) -> None:
    run.net.conv.weight.register_hook(aten.zeros_like)


def frozen(run: Trainer) -> None:
    run.net.fc2.weight.requires_grad_(False)


def detached(run: Trainer) -> None:
    run.net.merge = lambda hidden, branch: hidden + branch.detach()


class NotDivided(Trainer):
    def divide(self, loss: Any) -> Any:
        return loss


class DividedTwice(Trainer):
    def divide(self, loss: Any) -> Any:
        return loss / self.setting.micro**2


def _truth(operators: tuple[str, ...], modules: tuple[str, ...], what: str, **other: Any) -> Truth:
    known = {"phase": "backward", "verdict": "operator", "operators": operators, "modules": modules, "what": what}
    return Truth(**known | other)


CASES = (
    Case(
        "gelu_backward_doubled",
        GPT,
        _truth(
            ("Functional.gelu.1.backward",), ("Module.blocks.1.act.GELU.backward.0",), "twice the gradient of one gelu"
        ),
        kernel=kernel(F, "gelu", 1, wrong_gradient(gelu_doubled)),
    ),
    Case(
        "gelu_backward_doubled_l1",
        Setting("gpt", level="L1"),
        _truth(("Functional.gelu.0.backward",), (), "twice the gradient of one gelu; level L1"),
        kernel=kernel(F, "gelu", 0, wrong_gradient(gelu_doubled)),
    ),
    Case(
        "gelu_backward_doubled_l0",
        Setting("gpt", level="L0"),
        _truth(
            ("Module.blocks.1.act.GELU.backward.0",),
            ("Module.blocks.1.act.GELU.backward.0",),
            "twice the gradient of one gelu; level L0 has the module only",
        ),
        kernel=kernel(F, "gelu", 1, wrong_gradient(gelu_doubled)),
    ),
    Case(
        "silu_backward_wrong",
        Setting("conv"),
        _truth(("Functional.silu.0.backward",), ("Module.act.SiLU.backward.0",), "the derivative lacks a term"),
        kernel=kernel(F, "silu", 0, wrong_gradient(silu_without_product)),
    ),
    Case(
        "leaky_relu_backward_leaks_md5",
        Setting("mlp", task="md5"),
        _truth(("Functional.leaky_relu.0.backward",), (), "the leaky relu lets every gradient through"),
        kernel=kernel(F, "leaky_relu", 0, wrong_gradient(relu_leaks)),
    ),
    Case(
        "softmax_backward_wrong",
        GPT,
        _truth(
            ("Torch.softmax.0.backward",),
            ("Module.blocks.0.attn.Attention.backward.0",),
            "the derivative lacks its sum",
        ),
        kernel=kernel(torch, "softmax", 0, wrong_gradient(softmax_without_sum)),
    ),
    Case(
        "tanh_backward_wrong_step_1",
        Setting("mlp", steps=2, optimizer="sgd"),
        _truth(
            ("Torch.tanh.0.backward",),
            ("Module.act.Tanh.backward.0",),
            "tanh is differentiated at its input, in step 1 only",
            step=1,
        ),
        kernel=kernel(torch, "tanh", 1, wrong_gradient(tanh_of_wrong_side)),
    ),
    Case(
        "gradient_doubled_between",
        MLP,
        _truth(
            ("Tensor.__add__.0.backward",),
            ("Module.drop.Dropout.backward.0",),
            "the gradient is doubled between the head and the sum by what the dump does not have; "
            "the sum's backward is the first to get it",
            verdict="input",
            also=("operator",),
        ),
        doubled_between,
    ),
    Case(
        "branch_detached",
        MLP,
        _truth(
            ("Tensor.__add__.0.forward", "Tensor.__add__.0.backward", "Functional.leaky_relu.0.backward"),
            (),
            "the branch is detached: the sum's input lacks requires_grad, and the branch gets no gradient",
        ),
        detached,
    ),
    Case(
        "micro_batches_not_divided",
        Setting("mlp", micro=2),
        _truth(
            (
                "Tensor.__truediv__.0.forward",
                "Tensor.__truediv__.0.backward",
                "Functional.cross_entropy.0.backward",
            ),
            (),
            "micro-batches are summed, not averaged: the division of the loss is missing in target",
        ),
        trainer=NotDivided,
    ),
    Case(
        "micro_batches_divided_twice",
        Setting("mlp", micro=2),
        _truth(("Tensor.__truediv__.0.forward",), (), "the loss is divided by 4, not 2", phase="forward"),
        trainer=DividedTwice,
    ),
    Case(
        "parameter_gradient_halved",
        MLP,
        _truth(
            ("Module.fc2.Linear.parameters_grad.0",),
            (),
            "a hook halves the gradient of fc2.weight after its linear's backward",
            phase="parameter_gradient",
        ),
        parameter_halved,
    ),
    Case(
        "parameter_gradient_zeroed",
        Setting("conv"),
        _truth(
            ("Module.conv.Conv2d.parameters_grad.0",),
            (),
            "a hook zeroes the gradient of conv.weight",
            phase="parameter_gradient",
        ),
        weight_zeroed,
    ),
    Case(
        "parameter_frozen",
        MLP,
        _truth(
            ("Functional.linear.1.forward", "Functional.linear.1.backward", "Module.fc2.Linear.parameters_grad.0"),
            (),
            "fc2.weight needs no gradient: its linear records that (requires_grad) and returns none",
            phase="parameter_gradient",
        ),
        frozen,
    ),
)
