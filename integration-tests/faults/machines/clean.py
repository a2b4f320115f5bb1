"""Pairs without a fault: another machine, or other code for the same mathematics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from faults.case import Case, Setting, Truth

from . import variants
from .variants import machine, rewritten


def none(what: str, *, bits_differ: bool | None = True, also: tuple[str, ...] = ()) -> Truth:
    return Truth("none", "none", (), (), what, also=also, rank=None, step=None, bits_differ=bits_differ)


def _machines() -> list[Case]:
    """Each net on another machine, with and without the optimizer, over one step and over five."""
    cases = []
    for net, optimizer, steps, name in MACHINES:
        setting = Setting(net, optimizer=optimizer, steps=steps, ranks=2 if net == "ddp" else 1)
        label = f"clean_{net}_{optimizer}_{steps}_{name}"
        kernel = machine(name)
        cases.append(
            Case(label, setting, none(f"the same on another machine: {name}"), kernel=kernel, is_confirmed_apart=True)
        )
    return cases


MACHINES = (
    ("fused", "adamw", 1, "old"),
    ("fused", "adamw", 5, "old"),
    ("fused", "adamw", 5, "threads2"),
    ("fused", "unseen_adamw", 5, "old"),
    ("fused", "unseen_adamw", 2, "threads2"),
    ("fused", "unseen_adam", 5, "avx2"),
    ("fused", "unseen_rmsprop", 5, "mkl_avx2"),
    ("fused", "adam", 2, "mkl_sse"),
    ("fused", "rmsprop", 2, "portable"),
    ("fused", "adagrad", 2, "old"),
    ("fused", "sgd", 5, "old"),
    ("fused", "unseen_sgd", 5, "mkl_avx2"),
    ("fused", "none", 1, "avx2"),
    ("fused2", "many", 2, "old"),
    ("fused2", "unseen_many", 2, "portable"),
    ("fused2", "none", 1, "threads2"),
    ("norms", "adamw", 1, "old"),
    ("norms", "adamw", 5, "no_onednn"),
    ("norms", "adam", 5, "threads2"),
    ("norms", "unseen_adamw", 5, "onednn_avx2"),
    ("norms", "unseen_adam", 5, "no_onednn"),
    ("norms", "rmsprop", 2, "onednn_sse"),
    ("norms", "amsgrad", 2, "old"),
    ("norms", "nadam", 2, "no_onednn"),
    ("norms", "sgd", 5, "no_onednn"),
    ("norms", "unseen_descent", 5, "old"),
    ("norms", "none", 1, "portable"),
    ("deep", "adamw", 5, "old"),
    ("deep", "unseen_adamw", 5, "mkl_avx2"),
    ("deep", "adagrad", 5, "portable"),
    ("deep", "unseen_amsgrad", 5, "old"),
    ("deep", "descent", 5, "portable"),
    ("deep", "none", 1, "mkl_sse"),
    ("plain", "adam", 5, "old"),
    ("plain", "unseen_adam", 5, "mkl_avx2"),
    ("plain", "sgd", 5, "old"),
    ("half", "adamw", 5, "old"),
    ("half", "unseen_adamw", 2, "portable"),
    ("half", "sgd", 2, "old"),
    ("brain", "adamw", 5, "old"),
    ("brain", "unseen_adam", 2, "no_onednn"),
    ("brain", "descent", 5, "onednn_avx2"),
    ("brain", "none", 1, "portable"),
    ("ddp", "adamw", 2, "old"),
    ("ddp", "unseen_adamw", 5, "mkl_avx2"),
    ("ddp", "sgd", 2, "portable"),
)


def _other_code() -> list[Case]:
    cases = []
    for label, setting, trainer, what, is_rewritten, bits_differ in OTHER_CODE:
        truth = none(what, bits_differ=bits_differ, also=("rewritten",) if is_rewritten else ())
        cases.append(Case(f"clean_{label}", setting, truth, trainer=trainer))
    return cases


FUSED = Setting("fused")
ADAM = replace(FUSED, optimizer="adamw", steps=2)
HIDDEN = replace(FUSED, optimizer="unseen_adamw", steps=2)
DEEP = Setting("deep", optimizer="adam", steps=2)
NORMS = Setting("norms", optimizer="adamw", steps=2)
ACCUMULATED = Setting("deep", optimizer="adamw", steps=2, micro=4)
OTHER_CODE: tuple[tuple[str, Setting, Any, str, bool, bool | None], ...] = (
    ("sdpa_math", ADAM, variants.backend("MATH"), "attention by torch's mathematical backend", False, True),
    ("sdpa_math_unseen", HIDDEN, variants.backend("MATH"), "attention by torch's mathematical backend", False, True),
    ("split", FUSED, rewritten(variants.split), "three projections instead of a fused one", True, True),
    ("split_adam", ADAM, rewritten(variants.split), "three projections instead of a fused one", True, True),
    ("split_l1", replace(FUSED, level="L1"), rewritten(variants.split), "three projections; level L1", True, True),
    ("attention_written_out", FUSED, rewritten(variants.written_out), "attention in single operators", True, True),
    (
        "attention_written_out_l1",
        replace(FUSED, level="L1"),
        rewritten(variants.written_out),
        "attention in single operators; level L1",
        True,
        True,
    ),
    ("attention_written_out_adam", ADAM, rewritten(variants.written_out), "the same, and AdamW", True, True),
    ("merged_lora", Setting("lora"), rewritten(variants.merged), "the adapter is in the weight", True, True),
    (
        "merged_lora_sgd",
        Setting("lora", optimizer="sgd", steps=2),
        rewritten(variants.merged),
        "the adapter is in the weight",
        True,
        True,
    ),
    (
        "merged_lora_l1",
        Setting("lora", level="L1"),
        rewritten(variants.merged),
        "the adapter is in the weight; level L1",
        True,
        True,
    ),
    ("norm_written_out", FUSED, rewritten(variants.norm_written_out), "a LayerNorm in single operators", True, True),
    ("norm_written_out_adam", DEEP, rewritten(variants.norm_written_out), "the same, and Adam", True, True),
    ("gelu_written_out", FUSED, rewritten(variants.gelu_written_out), "GELU in single operators", True, True),
    ("linear_as_product", DEEP, rewritten(variants.linear_as_product), "a linear as product and sum", True, True),
    ("loss_of_logarithms", DEEP, variants.LossOfLogarithms, "the loss as log_softmax and nll_loss", True, None),
    ("accumulated_backwards", ACCUMULATED, variants.ReversedAccumulation, "gradients added backwards", True, True),
    ("channels_last", NORMS, variants.ChannelsLast, "channels innermost", False, True),
    (
        "ddp_buckets",
        Setting("ddp", ranks=2, optimizer="adamw", steps=2),
        variants.Buckets,
        "small buckets",
        False,
        False,
    ),
    ("fsdp", Setting("ddp", ranks=2), variants.Sharded, "FSDP instead of DDP", True, None),
    ("fsdp_unseen", Setting("ddp", ranks=2, optimizer="unseen_sgd", steps=2), variants.Sharded, "FSDP", True, None),
    (
        "tensor_parallel",
        Setting("whole", ranks=2),
        variants.TensorParallel,
        "two halves instead of a whole",
        True,
        True,
    ),
    (
        "tensor_parallel_unseen",
        Setting("whole", ranks=2, optimizer="unseen_sgd", steps=2),
        variants.TensorParallel,
        "two halves instead of a whole, over two steps",
        True,
        True,
    ),
)


def _other_torch() -> list[Case]:
    """Each by another version of torch."""
    return [
        Case(
            f"clean_{setting.name}_{environment}",
            setting,
            none(f"the same by the torch of the environment {environment}", bits_differ=None, also=("rewritten",)),
            environment=environment,
            is_confirmed_apart=True,
        )
        for environment in ("torch26", "torch21")
        for setting in (ADAM, HIDDEN, NORMS, DEEP)
    ]


CASES: tuple[Case, ...] = (*_machines(), *_other_code(), *_other_torch())
