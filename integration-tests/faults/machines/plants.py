"""What is planted in single nets, and how a fault is laid over another machine's rounding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from faults.case import Case, Kernel, Plant, Setting, Truth
from faults.kernels import aten

from .trainer import Machines
from .variants import Handmade, both, machine, written_out

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


def twice(path: str, step: int) -> type[Machines]:
    """One parameter is updated twice in a step."""

    class Twice(Machines):
        def update(self) -> None:
            weight = self.net.get_parameter(path).data
            before = aten.clone(weight)
            super().update()
            if self.step == step:
                aten.copy_(weight, aten.sub.Tensor(aten.mul.Scalar(weight, 2.0), before))

    return Twice


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
    (run.net.blocks[0] if hasattr(run.net, "blocks") else run.net).merge = lambda _, branch: branch


def flipped(run: Any) -> None:
    (run.net.blocks[0] if hasattr(run.net, "blocks") else run.net).merge = lambda hidden, branch: (
        hidden + branch.flip(0)
    )


def T(operators: str | tuple[str, ...], modules: str | tuple[str, ...], what: str, **other: Any) -> Truth:  # noqa: N802
    names = (operators,) if isinstance(operators, str) else operators
    around = (modules,) if isinstance(modules, str) else modules
    known: dict[str, Any] = {
        "phase": "forward",
        "verdict": "operator",
        "operators": names,
        "modules": around,
        "what": what,
    }
    return Truth(**known | other)


BACK: dict[str, Any] = {"phase": "backward"}
OPT: dict[str, Any] = {"phase": "optimizer"}
PARAMETER: dict[str, Any] = {"verdict": "parameter"}


def lost_update(name: str, setting: Setting, path: str, operator: str, module: str, step: int) -> Case:
    """A parameter's update is lost where nobody records: `step` begins with the old one."""
    truth = T(operator, module, "an update is lost, unseen", step=step, **PARAMETER)
    return Case(name, setting, truth, trainer=stale(path, step - 1))


Faults = tuple[tuple[Case, tuple[str, ...]], ...]
"""Cases, and the machines that each is laid over."""


def over(case: Case, name: str) -> Case:
    """The same fault on another machine."""
    truth = replace(case.truth, what=f"{case.truth.what}; on another machine: {name}")
    kernel: Kernel = both(machine(name), case.kernel)
    return replace(case, name=f"{case.name}_over_{name}", truth=truth, kernel=kernel, is_confirmed_apart=True)


def laid_over(faults: Faults) -> tuple[Case, ...]:
    """Each case, and behind it the same on other machines."""
    return tuple(one for case, names in faults for one in (case, *(over(case, name) for name in names)))
