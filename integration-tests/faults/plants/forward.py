"""Faults of a net's code and numbers: they show in the forward pass."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from faults.case import Case, Plant, Setting, Truth
from faults.trainer import Trainer

GPT = Setting("gpt")
MLP = Setting("mlp")
CONV = Setting("conv")


def attribute(path: str, name: str, value: Any) -> Plant:
    """Sets an attribute of a module of the net."""

    def plant(run: Trainer) -> None:
        setattr(run.net.get_submodule(path), name, value)

    return plant


def transposed(run: Trainer) -> None:
    weight = run.net.blocks[0].attn.out.weight
    weight.data = weight.data.t().contiguous()


def one_element(run: Trainer) -> None:
    run.net.fc2.weight.data[3, 7] += 0.5


def swapped_query_and_key(run: Trainer) -> None:
    attention = run.net.blocks[1].attn
    attention.scores = lambda query, key: torch.matmul(key, query.transpose(-2, -1)) * attention.scale


def no_causal_diagonal(run: Trainer) -> None:
    run.net.blocks[1].attn.mask = lambda time: torch.ones(time, time, dtype=torch.bool).triu(0)


def one_residual_less(run: Trainer) -> None:
    merges: list[int] = []

    def merge(hidden: Any, branch: Any) -> Any:
        merges.append(1)
        return branch if len(merges) == 1 else hidden + branch

    run.net.blocks[0].merge = merge


def changed_in_place(run: Trainer) -> None:
    def merge(hidden: Any, branch: Any) -> Any:
        # Unseen by msprobe and by autograd, as a kernel that writes where it should not.
        torch.ops.aten.mul_.Scalar(hidden.data[:2], 1.25)
        return hidden + branch

    run.net.merge = merge


def extra_call(run: Trainer) -> None:
    run.net.merge = lambda hidden, branch: hidden + torch.tanh(branch)


def from_step_1(run: Trainer) -> None:
    def late(module: Any, arguments: Any) -> None:
        del arguments
        module.eps = 1e-5 if run.step == 0 else 1e-2

    run.net.norm.register_forward_pre_hook(late)


def reseeded(run: Trainer) -> None:
    del run
    torch.manual_seed(7)


class Summed(Trainer):
    """Sums the loss."""

    def loss(self, out: Any, labels: Any) -> Any:
        return F.cross_entropy(out.reshape(-1, out.shape[-1]), labels.reshape(-1), reduction="sum")


def _truth(operator: str, module: str | tuple[str, ...], what: str, **other: Any) -> Truth:
    """An operator of the forward pass, whose inputs agree."""
    modules = (module,) if isinstance(module, str) else module
    return Truth(
        **{"phase": "forward", "verdict": "operator", "operators": (operator,), "modules": modules, "what": what}
        | other
    )


CASES = (
    Case(
        "layer_norm_eps",
        GPT,
        _truth("Functional.layer_norm.3.forward", "Module.blocks.1.ln2.LayerNorm.forward.0", "eps is 1e-3, not 1e-5"),
        attribute("blocks.1.ln2", "eps", 1e-3),
    ),
    Case(
        "layer_norm_eps_l0",
        Setting("gpt", level="L0"),
        _truth(
            "Module.blocks.1.ln2.LayerNorm.forward.0",
            "Module.blocks.1.ln2.LayerNorm.forward.0",
            "eps is 1e-3, not 1e-5; level L0 has the module only",
        ),
        attribute("blocks.1.ln2", "eps", 1e-3),
    ),
    Case(
        "layer_norm_eps_from_step_1",
        Setting("mlp", steps=2, optimizer="sgd"),
        _truth(
            "Functional.layer_norm.0.forward", "Module.norm.LayerNorm.forward.0", "eps is 1e-2 from step 1 on", step=1
        ),
        from_step_1,
    ),
    Case(
        "weight_transposed",
        GPT,
        _truth(
            "Functional.linear.3.forward",
            "Module.blocks.0.attn.out.Linear.forward.0",
            "the square weight of attn.out is transposed: its statistics but for rounding agree, its bits do not",
            verdict="parameter",
            also=("operator", "cannot_tell"),
        ),
        transposed,
    ),
    Case(
        "weight_transposed_md5",
        Setting("gpt", task="md5"),
        _truth(
            "Functional.linear.3.forward",
            "Module.blocks.0.attn.out.Linear.forward.0",
            "the square weight of attn.out is transposed: its checksum differs",
            verdict="parameter",
        ),
        transposed,
    ),
    Case(
        "weight_element",
        MLP,
        _truth(
            "Functional.linear.1.forward",
            "Module.fc2.Linear.forward.0",
            "one element of fc2.weight is 0.5 too large",
            verdict="parameter",
        ),
        one_element,
    ),
    Case(
        "weight_element_tensor",
        Setting("mlp", task="tensor"),
        _truth(
            "Functional.linear.1.forward",
            "Module.fc2.Linear.forward.0",
            "one element of fc2.weight is 0.5 too large",
            verdict="parameter",
        ),
        one_element,
        kept=False,
    ),
    Case(
        "causal_mask",
        GPT,
        _truth(
            "Tensor.masked_fill.1.forward",
            "Module.blocks.1.attn.Attention.forward.0",
            "the mask hides the diagonal as well; what made it is not in the dump, masked_fill gets it first",
            verdict="input",
            also=("operator",),
        ),
        no_causal_diagonal,
    ),
    Case(
        "causal_mask_risk_all",
        Setting("gpt", level="L1", risk="ALL"),
        _truth("Tensor.triu.1.forward", (), "the mask hides the diagonal as well: triu's argument is 0, not 1"),
        no_causal_diagonal,
    ),
    Case(
        "mask_fill_infinite",
        GPT,
        _truth(
            "Tensor.masked_fill.0.forward",
            (),
            "the mask fills with -inf, not -1e4; the softmax makes the same of both",
        ),
        attribute("blocks.0.attn", "fill", float("-inf")),
    ),
    Case(
        "softmax_scale",
        GPT,
        _truth(
            "Tensor.__mul__.0.forward", "Module.blocks.0.attn.Attention.forward.0", "scores are scaled by 1/4, not 1/2"
        ),
        attribute("blocks.0.attn", "scale", 0.25),
    ),
    Case(
        "softmax_dim",
        GPT,
        _truth("Torch.softmax.1.forward", "Module.blocks.1.attn.Attention.forward.0", "softmax over queries, not keys"),
        attribute("blocks.1.attn", "softmax_dim", -2),
    ),
    Case(
        "gelu_tanh",
        GPT,
        _truth(
            "Functional.gelu.0.forward", "Module.blocks.0.act.GELU.forward.0", "the tanh approximation instead of erf"
        ),
        attribute("blocks.0.act", "approximate", "tanh"),
    ),
    Case(
        "leaky_slope",
        MLP,
        _truth("Functional.leaky_relu.0.forward", (), "negative slope 0.2, not 0.1"),
        attribute("", "slope", 0.2),
    ),
    Case(
        "residual_missing",
        GPT,
        _truth(
            "Tensor.__add__.1.forward",
            "Module.blocks.0.ln2.LayerNorm.forward.0",
            "blocks.0 lacks its first residual sum: golden's __add__.1 has no counterpart, later sums count one less",
            operators=("Tensor.__add__.1.forward", "Functional.layer_norm.1.forward"),
        ),
        one_residual_less,
    ),
    Case(
        "layer_missing",
        GPT,
        _truth(
            "Functional.layer_norm.4.forward",
            "Module.head.Linear.forward.0",
            "the last LayerNorm is left out: no counterpart for layer_norm.4, the head gets what it should have normed",
            operators=("Functional.layer_norm.4.forward", "Functional.linear.12.forward"),
        ),
        lambda run: setattr(run.net, "ln", nn.Identity()),
    ),
    Case(
        "extra_call",
        MLP,
        _truth(
            "Torch.tanh.1.forward",
            "Module.head.Linear.forward.0",
            "a tanh too many on the branch: tanh.1 is in target only, the sum is the first that gets what differs",
            operators=("Torch.tanh.1.forward", "Tensor.__add__.0.forward"),
        ),
        extra_call,
    ),
    Case(
        "norm_momentum",
        Setting("conv", steps=2),
        _truth(
            "Functional.batch_norm.0.forward",
            (),
            "momentum 0.2, not 0.1: an argument; its outputs agree, the running statistics of step 1 do not",
        ),
        attribute("norm1", "momentum", 0.2),
    ),
    Case(
        "conv_padding",
        CONV,
        _truth("Functional.conv2d.0.forward", "Module.stem.Conv2d.forward.0", "padding 2, not 1: another shape"),
        attribute("stem", "padding", (2, 2)),
    ),
    Case(
        "conv_stride",
        CONV,
        _truth("Functional.conv2d.1.forward", "Module.conv.Conv2d.forward.0", "stride 2, not 1: another shape"),
        attribute("conv", "stride", (2, 2)),
    ),
    Case(
        "group_norm_groups",
        CONV,
        _truth("Functional.group_norm.0.forward", "Module.norm2.GroupNorm.forward.0", "3 groups, not 2"),
        attribute("norm2", "num_groups", 3),
    ),
    Case(
        "query_and_key_swapped",
        GPT,
        _truth(
            "Torch.matmul.2.forward",
            "Module.blocks.1.attn.Attention.forward.0",
            "key times query instead of query times key: each operand is right, but in the other's place",
            also=("input",),
        ),
        swapped_query_and_key,
    ),
    Case(
        "changed_in_place",
        MLP,
        _truth(
            "Tensor.__add__.0.forward",
            "Module.head.Linear.forward.0",
            "half the hidden state is overwritten after use, unseen; the sum is the first to read it",
            verdict="input",
            also=("operator",),
        ),
        changed_in_place,
    ),
    Case(
        "padding_index",
        GPT,
        _truth(
            "Functional.embedding.0.forward",
            (),
            "no padding_idx: an argument; the embedding is the same, its gradient is not",
            operators=("Functional.embedding.0.forward",),
        ),
        attribute("tokens", "padding_idx", None),
    ),
    Case(
        "dropout_seed",
        Setting("mlp", dropout=0.25),
        _truth(
            "Functional.dropout.0.forward", "Module.drop.Dropout.forward.0", "another state of the random generator"
        ),
        reseeded,
    ),
    Case(
        "dropout_rate",
        Setting("gpt", dropout=0.1),
        _truth("Functional.dropout.1.forward", "Module.blocks.1.drop.Dropout.forward.0", "p is 0.2, not 0.1"),
        attribute("blocks.1.drop", "p", 0.2),
    ),
    Case(
        "loss_summed",
        GPT,
        _truth("Functional.cross_entropy.0.forward", (), "reduction sum, not mean"),
        trainer=Summed,
    ),
)
