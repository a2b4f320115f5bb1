"""Faults of single nets; each is also laid over another machine's rounding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from faults.case import Case, Kernel, Plant, Setting, Truth
from faults.kernels import aten, in_type, rounded_inputs, rounded_result, wrong_gradient
from faults.plants.backward import gelu_doubled, relu_leaks, tanh_of_wrong_side
from faults.plants.forward import attribute
from faults.plants.forward_kernels import kernel
from faults.plants.optimizer import option

from .trainer import Machines
from .variants import Handmade, both, machine, rewritten, written_out

FUSED = Setting("fused")
ADAM = Setting("fused", optimizer="adamw", steps=2)
HIDDEN = Setting("fused", optimizer="unseen_adamw", steps=5)
NORMS = Setting("norms", optimizer="adamw", steps=2)
DEEP = Setting("deep", optimizer="adam", steps=2)
PLAIN = Setting("plain", optimizer="unseen_adam", steps=5)
SDPA = "Functional.scaled_dot_product_attention"


def element(path: str, by: float) -> Plant:
    """One element of a parameter is another from the beginning."""

    def plant(run: Any) -> None:
        parameter = run.net.get_parameter(path)
        parameter.data.view(-1)[7] += by

    return plant


def stale(path: str, step: int) -> type[Machines]:
    """One parameter's update is lost in a step."""

    class Stale(Machines):
        def update(self) -> None:
            weight = self.net.get_parameter(path).data
            before = aten.clone(weight)
            super().update()
            if self.step == step:
                aten.copy_(weight, before)

    return Stale


def late(path: str, name: str, value: Any, step: int) -> Plant:
    """An attribute of a module is another from a step on."""

    def plant(run: Any) -> None:
        def change(module: Any, arguments: Any) -> None:
            del arguments
            if run.step >= step:
                setattr(module, name, value)

        run.net.get_submodule(path).register_forward_pre_hook(change)

    return plant


class OtherBatch(Machines):
    """Step 1's data are another's."""

    def batch(self, step: int, micro: int) -> tuple[Any, Any]:
        return super().batch(7 if step == 1 else step, micro)


class Unscaled(Machines):
    """The gradients' scale is undone twice."""

    def update(self) -> None:
        for parameter in self.net.parameters():
            parameter.grad.data = aten.mul.Scalar(parameter.grad.data, 0.5)
        super().update()


def merged_wrongly(net: Any) -> None:
    """The adapter is merged without its scale."""
    net.adapted.scale = 1.0
    net.adapted = net.adapted.merged()


def norm_with_other_eps(net: Any) -> None:
    """A LayerNorm written out, its eps forgotten in the right place."""
    net.blocks[0].ln2 = Handmade(net.blocks[0].ln2)
    net.blocks[0].ln2.eps = 1e-1


def attention_unscaled(net: Any) -> None:
    """Attention written out; queries are scaled by 1/8 instead of 1/4."""
    written_out(net)
    for block in net.blocks:
        mix = block.attn.mix
        block.attn.mix = lambda query, key, value, mix=mix: mix(query * 0.5, key, value)


def gradient_hook(path: str, factor: float) -> Plant:
    def plant(run: Any) -> None:
        run.net.get_parameter(path).register_hook(lambda gradient: aten.mul.Scalar(gradient, factor))

    return plant


def merge_doubled(run: Any) -> None:
    def merge(hidden: Any, branch: Any) -> Any:
        total = hidden + branch
        total.register_hook(lambda gradient: aten.mul.Scalar(gradient, 2.0))
        return total

    (run.net.blocks[0] if hasattr(run.net, "blocks") else run.net).merge = merge


def residual_lost(run: Any) -> None:
    (run.net.blocks[0] if hasattr(run.net, "blocks") else run.net).merge = lambda hidden, branch: branch


def flipped(run: Any) -> None:
    (run.net.blocks[0] if hasattr(run.net, "blocks") else run.net).merge = lambda hidden, branch: hidden + branch.flip(0)


def T(operators: str | tuple[str, ...], modules: str | tuple[str, ...], what: str, **other: Any) -> Truth:  # noqa: N802
    names = (operators,) if isinstance(operators, str) else operators
    around = (modules,) if isinstance(modules, str) else modules
    known: dict[str, Any] = {"phase": "forward", "verdict": "operator", "operators": names, "modules": around, "what": what}
    return Truth(**known | other)


BACK: dict[str, Any] = {"phase": "backward"}
OPT: dict[str, Any] = {"phase": "optimizer"}
PARAMETER: dict[str, Any] = {"verdict": "parameter"}

FAULTS: tuple[tuple[Case, tuple[str, ...]], ...] = (
    (Case("sdpa_not_causal", ADAM, T(f"{SDPA}.0.forward", "Module.blocks.0.attn.Attention.forward.0", "attention sees what comes later"), attribute("blocks.0.attn", "is_causal", False)), ("old", "threads2")),
    (Case("sdpa_scale", FUSED, T(f"{SDPA}.0.forward", "Module.blocks.0.attn.Attention.forward.0", "scores are scaled by 1/8"), attribute("blocks.0.attn", "scale", 0.125)), ("old",)),
    (Case("sdpa_in_bf16", FUSED, T(f"{SDPA}.0.forward", "Module.blocks.0.attn.Attention.forward.0", "attention is computed in bf16"), kernel=kernel(F, "scaled_dot_product_attention", 0, in_type(torch.bfloat16))), ("old",)),
    (Case("ln_eps_late", HIDDEN, T("Functional.layer_norm.1.forward", "Module.blocks.0.ln2.LayerNorm.forward.0", "eps is 1e-2 from step 2 on", step=2), late("blocks.0.ln2", "eps", 1e-2, 2)), ("old", "avx2")),
    (Case("ln_eps_adam", ADAM, T("Functional.layer_norm.1.forward", "Module.blocks.0.ln2.LayerNorm.forward.0", "eps is 1e-2 in step 1", step=1), late("blocks.0.ln2", "eps", 1e-2, 1)), ("old",)),
    (Case("gelu_tanh_late", HIDDEN, T("Functional.gelu.0.forward", "Module.blocks.0.act.GELU.forward.0", "the tanh approximation from step 3 on", step=3), late("blocks.0.act", "approximate", "tanh", 3)), ("old",)),
    (Case("gelu_doubled", ADAM, T("Functional.gelu.0.backward", "Module.blocks.0.act.GELU.backward.0", "twice the gradient of gelu", **BACK), kernel=kernel(F, "gelu", 0, wrong_gradient(gelu_doubled))), ("old", "threads2")),
    (Case("gelu_doubled_late", HIDDEN, T("Functional.gelu.0.backward", "Module.blocks.0.act.GELU.backward.0", "twice the gradient of gelu in step 3", step=3, **BACK), kernel=kernel(F, "gelu", 3, wrong_gradient(gelu_doubled))), ("old",)),
    (Case("linear_in_bf16_late", HIDDEN, T("Functional.linear.2.forward", "Module.blocks.0.up.Linear.forward.0", "a linear of step 2 is computed in bf16", step=2), kernel=kernel(F, "linear", 12, in_type(torch.bfloat16))), ("old",)),
    (Case("linear_rounded_inputs", ADAM, T("Functional.linear.3.forward", "Module.blocks.0.down.Linear.forward.0", "a linear of step 1 rounds its operands to eight bits", step=1), kernel=kernel(F, "linear", 8, rounded_inputs)), ("old",)),
    (Case("qkv_weight_element", FUSED, T("Functional.linear.0.forward", "Module.blocks.0.attn.qkv.Linear.forward.0", "one element of the projection is another", **PARAMETER), element("blocks.0.attn.qkv.weight", 0.4)), ("old",)),
    (Case("qkv_bias_element", FUSED, T("Functional.linear.0.forward", "Module.blocks.0.attn.qkv.Linear.forward.0", "one element of the projection's bias is another", **PARAMETER), element("blocks.0.attn.qkv.bias", 0.4)), ("old",)),
    (Case("up_weight_stale", HIDDEN, T("Functional.linear.2.forward", "Module.blocks.0.up.Linear.forward.0", "an update is lost, unseen", step=2, **PARAMETER), trainer=stale("blocks.0.up.weight", 1)), ("old",)),
    (Case("down_bias_stale", HIDDEN, T("Functional.linear.3.forward", "Module.blocks.0.down.Linear.forward.0", "the update of a bias is lost, unseen", step=1, **PARAMETER), trainer=stale("blocks.0.down.bias", 0)), ("old",)),
    (Case("tokens_stale_adam", ADAM, T("Functional.embedding.0.forward", "Module.tokens.Embedding.forward.0", "an update is put back, unseen", step=1, **PARAMETER), trainer=stale("tokens.weight", 0)), ("old",)),
    (Case("residual_lost", ADAM, T(("Tensor.__add__.2.forward", "Functional.layer_norm.2.forward"), ("Module.blocks.0.Block.forward.0", "Module.ln.LayerNorm.forward.0"), "the second residual sum is left out"), residual_lost), ("old",)),
    (Case("flip_in_branch", FUSED, T(("Tensor.flip.0.forward", "Tensor.__add__.2.forward"), "Module.blocks.0.Block.forward.0", "a flip too many: the sum gets the samples in another order"), flipped), ("old",)),
    (Case("merge_gradient_doubled", FUSED, T("Tensor.__add__.2.backward", (), "the gradient is doubled between two operators", **BACK), merge_doubled), ("old",)),
    (Case("other_batch", HIDDEN, T("Functional.embedding.0.forward", "Module.tokens.Embedding.forward.0", "step 1's data are another's", step=1, phase="input", verdict="input", also=("operator",)), trainer=OtherBatch), ("old",)),
    (Case("fused_learning_rate", ADAM, T("Tensor.mul_.0.forward", (), "lr is 0.02, not 0.01", **OPT), option("lr", 0.02)), ("old",)),
    (Case("fused_beta1", ADAM, T("Tensor.lerp_.0.forward", (), "beta1 is 0.8, not 0.9", **OPT), option("betas", (0.8, 0.999))), ("old",)),
    (Case("fused_eps", ADAM, T("Tensor.add_.0.forward", (), "eps is 1e-5, not 1e-8", **OPT), option("eps", 1e-5)), ("old",)),
    (Case("gradient_hook", ADAM, T("Module.blocks.0.up.Linear.parameters_grad.0", (), "the gradient of a weight is halved", phase="parameter_gradient"), gradient_hook("blocks.0.up.weight", 0.5)), ("old",)),
    (Case("norm_other_eps", FUSED, T(("Functional.layer_norm.1.forward", "Tensor.mean.0.forward", "Tensor.__sub__.0.forward"), ("Module.blocks.0.ln2.Handmade.forward.0", "Module.blocks.0.ln2.LayerNorm.forward.0"), "a LayerNorm is written out with another eps"), trainer=rewritten(norm_with_other_eps)), ("old",)),
    (Case("attention_unscaled", FUSED, T((f"{SDPA}.0.forward", "Tensor.__mul__.0.forward"), "Module.blocks.0.attn.WrittenOut.forward.0", "attention is written out with another scale"), trainer=rewritten(attention_unscaled)), ("old",)),
    (Case("lora_scale_lost", Setting("lora", optimizer="sgd", steps=2), T(("Functional.linear.1.forward",), ("Module.adapted.base.Linear.forward.0", "Module.adapted.Linear.forward.0"), "the adapter is merged without its scale", also=("parameter",)), trainer=rewritten(merged_wrongly)), ("old",)),
    (Case("lora_scale", Setting("lora"), T("Tensor.__mul__.0.forward", "Module.adapted.Adapted.forward.0", "the adapter's scale is 1, not 2"), attribute("adapted", "scale", 1.0)), ("old",)),
    (Case("batch_norm_eps", NORMS, T("Functional.batch_norm.0.forward", "Module.norm1.BatchNorm2d.forward.0", "eps is 1e-2"), attribute("norm1", "eps", 1e-2)), ("old", "no_onednn")),
    (Case("group_norm_late", NORMS, T("Functional.group_norm.0.forward", "Module.norm2.GroupNorm.forward.0", "2 groups instead of 4 in step 1", step=1), late("norm2", "num_groups", 2, 1)), ("no_onednn",)),
    (Case("conv_rounded", NORMS, T("Functional.conv2d.1.forward", "Module.conv2.Conv2d.forward.0", "a convolution of step 1 is computed in bf16", step=1), kernel=kernel(F, "conv2d", 4, in_type(torch.bfloat16))), ("no_onednn", "old")),
    (Case("leaky_slope", NORMS, T("Functional.leaky_relu.0.forward", (), "slope 0.2 instead of 0.1"), lambda run: setattr(run.net, "slope", 0.2)), ("no_onednn",)),
    (Case("leaky_backward", NORMS, T("Functional.leaky_relu.0.backward", (), "the gradient passes a leaky relu as it is", **BACK), kernel=kernel(F, "leaky_relu", 0, wrong_gradient(relu_leaks))), ("no_onednn",)),
    (Case("conv_stale", Setting("norms", optimizer="unseen_adamw", steps=5), T("Functional.conv2d.1.forward", "Module.conv2.Conv2d.forward.0", "an update is lost, unseen", step=1, **PARAMETER), trainer=stale("conv2.weight", 0)), ("no_onednn",)),
    (Case("deep_tanh_backward", DEEP, T("Torch.tanh.0.backward", (), "tanh is differentiated at its input in step 1", step=1, **BACK), kernel=kernel(torch, "tanh", 1, wrong_gradient(tanh_of_wrong_side))), ("old",)),
    (Case("deep_norm_in_fp16", DEEP, T("Functional.layer_norm.0.forward", "Module.norm2.LayerNorm.forward.0", "a norm of step 1 is stored in fp16", step=1), kernel=kernel(F, "layer_norm", 1, rounded_result(torch.float16))), ("old",)),
    (Case("deep_weight_decay", replace(DEEP, optimizer="adamw"), T("Tensor.mul_.0.forward", (), "weight_decay is 0.2, not 0.1", **OPT), option("weight_decay", 0.2)), ("old",)),
    (Case("deep_residual_lost", DEEP, T(("Tensor.__add__.0.forward", "Functional.linear.2.forward"), "Module.head.Linear.forward.0", "the residual sum is left out"), residual_lost), ("old",)),
    (Case("plain_head_stale", PLAIN, T("Functional.linear.2.forward", "Module.head.Linear.forward.0", "an update is lost, unseen", step=3, **PARAMETER), trainer=stale("head.weight", 2)), ("old",)),
    (Case("plain_tanh_in_bf16", PLAIN, T("Torch.tanh.0.forward", (), "a tanh of step 4 is computed in bf16", step=4), kernel=kernel(torch, "tanh", 4, in_type(torch.bfloat16))), ("old",)),
    (Case("plain_linear_element", PLAIN, T("Functional.linear.1.forward", "Module.fc2.Linear.forward.0", "one element of a weight is another", **PARAMETER), element("fc2.weight", 0.3)), ("mkl_avx2",)),
    (Case("half_norm_eps", Setting("half", optimizer="adamw", steps=2), T("Functional.layer_norm.0.forward", "Module.norm2.LayerNorm.forward.0", "eps is 1e-1 in step 1", step=1), late("norm2", "eps", 1e-1, 1)), ("old",)),
    (Case("half_merge_doubled", Setting("half", optimizer="adamw", steps=2), T("Tensor.__add__.0.backward", (), "the gradient is doubled between two operators", **BACK), merge_doubled), ("old",)),
    (Case("brain_residual_lost", Setting("brain", optimizer="adamw", steps=2), T(("Tensor.__add__.0.forward", "Functional.linear.2.forward"), "Module.head.Linear.forward.0", "the residual sum is left out"), residual_lost), ("old",)),
    (Case("sgd_learning_rate", replace(ADAM, optimizer="sgd"), T("Tensor.add_.0.forward", (), "lr is 0.2", **OPT), option("lr", 0.2)), ("old",)),
    (Case("clip_scaled", replace(ADAM, clip=0.5), T("Tensor.lerp_.0.forward", (), "gradients are halved unseen before the update", **OPT), trainer=Unscaled), ("old",)),
)


def over(case: Case, name: str) -> Case:
    """The same fault on another machine."""
    truth = replace(case.truth, what=f"{case.truth.what}; on another machine: {name}")
    kernel: Kernel = both(machine(name), case.kernel)
    return replace(case, name=f"{case.name}_over_{name}", truth=truth, kernel=kernel, is_confirmed_apart=True)


CASES: tuple[Case, ...] = tuple(
    one for case, names in FAULTS for one in (case, *(over(case, name) for name in names))
)
