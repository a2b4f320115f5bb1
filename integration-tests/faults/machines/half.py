"""Half precision in rewritten code: clean pairs, and faults of a few units of its round-off."""

from __future__ import annotations

from typing import Any

import torch

from faults.case import Case, Setting

from .clean import none
from .plants import SDPA, Faults, T, laid_over
from .variants import (
    Gelu,
    Handmade,
    ProductForLinear,
    backend,
    gelu_written_out,
    norm_written_out,
    rewritten,
    split,
    written_out,
)

FUSED = Setting("fused_brain")
TRAINED = Setting("fused_brain", optimizer="unseen_adamw", steps=2)
BRAIN = Setting("brain", optimizer="unseen_adam", steps=2)
HALF = Setting("half", optimizer="unseen_adamw", steps=2)


def attention_gained(factor: float) -> Any:
    """Attention in single operators, its result times a number."""

    def change(net: Any) -> None:
        written_out(net)
        for block in net.blocks:
            mix = block.attn.mix
            block.attn.mix = lambda query, key, value, mix=mix: mix(query, key, value) * factor

    return change


class GainedGelu(Gelu):
    """Its result is 2 % too large."""

    def forward(self, hidden: Any) -> Any:
        return super().forward(hidden) * 1.02


def gelu_gained(net: Any) -> None:
    for block in net.blocks:
        block.act = GainedGelu()


class HalfProduct(ProductForLinear):
    """A linear as a product and a sum, both in half precision as torch's own; times `factor`."""

    factor: float | None = None

    def forward(self, inputs: Any) -> Any:
        product = torch.matmul(inputs, self.weight.t())
        total = product + self.bias.to(product.dtype)
        return total if self.factor is None else total * self.factor


def product(factor: float | None) -> Any:
    """A linear as a product and a sum, and times a number."""

    def change(net: Any) -> None:
        net.fc2 = HalfProduct(net.fc2)
        net.fc2.factor = factor

    return change


class HalfNorm(Handmade):
    """A LayerNorm in single operators whose result is of half precision, as torch's own."""

    def forward(self, hidden: Any) -> Any:
        return super().forward(hidden.float()).to(hidden.dtype)


def norm(net: Any) -> None:
    net.norm2 = HalfNorm(net.norm2)


CLEAN: tuple[Case, ...] = tuple(
    Case(f"clean_{label}", setting, none(what, also=("rewritten",)), trainer=trainer)
    for label, setting, trainer, what in (
        ("brain_attention_written_out", FUSED, rewritten(written_out), "attention in single operators"),
        ("brain_attention_written_out_unseen", TRAINED, rewritten(written_out), "the same, over two steps"),
        ("brain_split", FUSED, rewritten(split), "three projections instead of a fused one"),
        ("brain_gelu_written_out", TRAINED, rewritten(gelu_written_out), "GELU in single operators"),
        ("brain_layer_norm_written_out", FUSED, rewritten(norm_written_out), "a LayerNorm in single operators"),
        ("brain_sdpa_math", TRAINED, backend("MATH"), "attention by torch's mathematical backend"),
        ("brain_linear_as_product", BRAIN, rewritten(product(None)), "a linear as product and sum"),
        ("brain_norm_written_out", BRAIN, rewritten(norm), "a LayerNorm in single operators"),
        ("half_linear_as_product", HALF, rewritten(product(None)), "a linear as product and sum"),
        ("half_norm_written_out", HALF, rewritten(norm), "a LayerNorm in single operators"),
    )
)

ATTENTION: dict[str, Any] = {
    "operators": (
        f"{SDPA}.0.forward",
        "Torch.matmul.0.forward",
        "Tensor.__mul__.1.forward",
        "Functional.linear.1.forward",
    ),
    "modules": ("Module.blocks.0.attn.WrittenOut.forward.0", "Module.blocks.0.attn.out.Linear.forward.0"),
}
GELU: dict[str, Any] = {
    "operators": ("Functional.gelu.0.forward", "Tensor.__mul__.0.forward", "Functional.linear.3.forward"),
    "modules": ("Module.blocks.0.act.GELU.forward.0", "Module.blocks.0.down.Linear.forward.0"),
}
LINEAR: dict[str, Any] = {
    "operators": ("Functional.linear.1.forward", "Torch.matmul.0.forward", "Functional.layer_norm.0.forward"),
    "modules": ("Module.fc2.Linear.forward.0", "Module.norm2.LayerNorm.forward.0"),
}

FAULTS: Faults = tuple(
    (
        Case(label, setting, T(**places, what=what), trainer=rewritten(change), is_confirmed_apart=True),
        ("old",),
    )
    for label, setting, places, change, what in (
        (
            "brain_attention_gain",
            TRAINED,
            ATTENTION,
            attention_gained(1.02),
            "attention is written out, its result 2 % too large",
        ),
        ("brain_gelu_gain", FUSED, GELU, gelu_gained, "GELU is written out, its result 2 % too large"),
        ("half_product_gain", HALF, LINEAR, product(1.004), "a linear is written out, its result 0.4 % too large"),
    )
)

CASES: tuple[Case, ...] = (*CLEAN, *laid_over(FAULTS))
