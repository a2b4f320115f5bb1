"""The modules whose features are measured."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from trainmon._trainmon import squash_name
from trainmon.common.guard import Guard
from trainmon.common.kinds import kind_of
from trainmon.common.settings import FeatureTargets as Wanted
from trainmon.common.settings import Settings
from trainmon.device.measurer import Measurer
from trainmon.frameworks.job import Job
from trainmon.hooks.torch_hooks import Hook, in_backward
from trainmon.measurement.chunks import refusal
from trainmon.measurement.labels import Label, local_part
from trainmon.measurement.unobserved import quietly
from trainmon.signals.eager_modules import eager_modules
from trainmon.signals.features import numbers

Numbers = Sequence[torch.Tensor]


@dataclass(slots=True, eq=False)
class Site:
    """One feature of one module."""

    kind: int
    id: int
    compute: Callable[[torch.nn.Module, tuple[Any, ...], Any], Numbers]
    """Receives the module, its positional inputs and its output; raises `ValueError` if they are unsuitable."""
    every_micro_batch: bool
    calls: int = 0
    """The number of forward calls in this step: the index of the next micro-batch."""


class Features:
    """Measures msprobe's level-2 features in the forward pass.

    Weights are measured once per step, at the last micro-batch: under sharding they are whole only while their module
    runs. Torch's random generators and the graph are not used.
    """

    def __init__(self, measurer: Measurer, guard: Guard, settings: Settings, job: Job) -> None:
        self._measurer = measurer
        self._monitor = measurer.monitor
        self._guard = guard
        self._settings = settings
        self._job = job
        self._sites: list[Site] = []
        self._handles: list[RemovableHandle] = []

    def attach(self, models: Sequence[torch.nn.Module]) -> None:
        """Hooks the modules that the config names. Warns of a name without a module."""
        wanted = self._settings.features
        if wanted is None:
            return
        found: set[str] = set()
        for vpp_stage, model in enumerate(models):
            for raw, name, module in eager_modules(model, self._monitor, self._settings):
                for hook, listed, tail in _hooks(wanted):
                    look = partial(self._shown, hook, listed, (name, raw), vpp_stage, module)
                    shown = self._guard.each(hook, name, look)
                    if shown is not None:
                        found |= {name, raw}
                        self._guard.each(hook, name, partial(self._hook, hook, f"{shown}.{tail}", vpp_stage, module))
        missing = sorted({_bare(name) for _, listed, _ in _hooks(wanted) for name in listed or ()} - found)
        if missing:
            self._monitor.say(
                "warning",
                f"`l2_targets`: no module of the model is named {', '.join(missing[:5])}",
                "use names from `named_modules()`",
            )

    def _shown(
        self, hook: str, listed: Sequence[str] | None, names: tuple[str, str], vpp_stage: int, module: torch.nn.Module
    ) -> str | None:
        """The module's name for this feature in the output; None if it does not have the feature. `names`: those in the
        output and in the model."""
        squashed = squash_name(names[0]) if self._settings.squash_name else names[0]
        if listed:
            asked = {*names, squashed} | {f"{vpp_stage}:{one}" for one in (*names, squashed)}
            return squashed if asked & set(listed) else None
        # Only this hook has a default when no name is given.
        is_asked = listed is not None and hook == "linear_hook" and weight_name(module) is not None
        return squashed if is_asked else None

    def _hook(self, hook: str, name: str, vpp_stage: int, module: torch.nn.Module) -> None:
        kind = kind_of(hook)
        if kind is None:
            return
        compute, every_micro_batch = self._feature(hook, name)
        site = Site(kind, self._monitor.register(name, vpp_stage), compute, every_micro_batch)
        self._sites.append(site)

        def called(module: torch.nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            if module.training and not in_backward():
                self._called(site, module, inputs, output)

        hooked = Hook(self._guard.at(hook, name, called))
        self._handles.append(torch.nn.Module.register_forward_hook(module, hooked))

    def _feature(self, hook: str, name: str) -> tuple[Callable[..., Numbers], bool]:
        """The function that computes it, and whether for every micro-batch."""
        if hook == "attention_hook":
            order = self._settings.features.order if self._settings.features is not None else "s,b,h,d"
            return lambda _module, inputs, _output: _attention(inputs, order), True
        if hook == "linear_hook":
            return LinearRank(name), False
        if hook == "moe_router_weight_hook":
            return lambda module, _inputs, _output: (numbers.similarity(_weight(module)),), False
        return lambda _module, _inputs, output: (numbers.token_entropy(_logits(output)),), True

    def _called(self, site: Site, module: torch.nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        micro_step, site.calls = site.calls, site.calls + 1
        if not self._monitor.wants(site.kind):
            return
        if not site.every_micro_batch and micro_step != self._job.grad_acc_steps - 1:
            return
        try:
            with quietly(_device_type(module, inputs, output)):
                values = site.compute(module, inputs, output)
        except ValueError as why:
            self._monitor.observe_unsupported(site.id, site.kind, str(why))
            return
        # Features of weights belong to no micro-batch.
        self._measurer.values(Label(site.id, site.kind, micro_step if site.every_micro_batch else 0), values)
        self._measurer.launch()

    def begin_next_step(self) -> None:
        """Prepares for each module's first call of the next step."""
        for site in self._sites:
            site.calls = 0

    def detach(self) -> None:
        """Removes the hooks."""
        while self._handles:
            self._handles.pop().remove()
        self._sites = []


class LinearRank:
    """Stable rank and largest singular value of a module's weight, with a stored vector that makes later calls
    cheap."""

    def __init__(self, name: str) -> None:
        # The same on every rank and in every run; torch's own generators belong to the training.
        self._seed = zlib.crc32(name.encode())
        self._vector: torch.Tensor | None = None

    def __call__(self, module: torch.nn.Module, _inputs: Any, _output: Any) -> Numbers:
        """`(sr, kernel_norm)`."""
        weight = _weight(module)
        known, columns = self._vector, weight.shape[1]
        if known is not None and known.shape == (columns,) and known.device == weight.device:
            rank, norm, self._vector = numbers.spectral(weight, self._woken(known), numbers.NEXT_ITERATIONS)
        else:
            start = self._random(columns, weight.device)
            rank, norm, self._vector = numbers.spectral(weight, start, numbers.FIRST_ITERATIONS)
        return rank, norm

    def _random(self, columns: int, device: torch.device) -> torch.Tensor:
        generator = torch.Generator(device="cpu").manual_seed(self._seed)
        start = torch.randn(columns, generator=generator, dtype=torch.float32, device="cpu")
        start /= torch.linalg.vector_norm(start)
        return start if device.type == "cpu" else start.pin_memory().to(device, non_blocking=True)

    def _woken(self, known: torch.Tensor) -> torch.Tensor:
        """The last vector, unless the weight was zero or not finite then."""
        return torch.where(known.isfinite().all(), known, torch.ones_like(known))


def _hooks(wanted: Wanted) -> list[tuple[str, list[str] | None, str]]:
    """`(hook, requested names, tail of the row's name)`."""
    return [
        ("attention_hook", wanted.attention, "attention"),
        ("linear_hook", wanted.linear, "linear"),
        ("moe_router_weight_hook", wanted.router_weight, "moe_router"),
        ("moe_router_logit_hook", wanted.router_logit, "moe_router"),
    ]


def _bare(name: str) -> str:
    """The name without the number of a model chunk."""
    head, colon, tail = name.partition(":")
    return tail if colon and head.isdecimal() else name


def weight_name(module: torch.nn.Module) -> str | None:
    """`weight` or `wg`, whichever is a matrix; None for embeddings and modules without one."""
    # Megatron's vocabulary-parallel layers have the range of their part.
    if any(hasattr(module, name) for name in ("num_embeddings", "vocab_start_index")):
        return None
    for name in ("weight", "wg"):
        value = getattr(module, name, None)
        if isinstance(value, torch.Tensor) and value.dim() == 2:
            return name
    return None


def _weight(module: torch.nn.Module) -> torch.Tensor:
    name = weight_name(module)
    if name is None:
        raise ValueError(f"a `{type(module).__name__}` has no matrix `weight` or `wg`")
    weight: torch.Tensor = local_part(getattr(module, name).detach())
    return _readable(weight)


def _attention(inputs: tuple[Any, ...], order: str) -> Numbers:
    if len(inputs) < 2 or not all(isinstance(one, torch.Tensor) for one in inputs[:2]):
        raise ValueError("expected queries and keys as the first two positional inputs")
    q, k = (_readable(local_part(one.detach())) for one in inputs[:2])
    return numbers.attention(q, k, order)


def _logits(output: Any) -> torch.Tensor:
    if isinstance(output, list | tuple):
        output = next((one for one in output if isinstance(one, torch.Tensor)), output)
    if not isinstance(output, torch.Tensor):
        # A `ValueError`, like other mismatches: it is the model's, not a caller's mistake.
        raise ValueError(  # noqa: TRY004
            f"expected a tensor of logits as output, found `{type(output).__name__}`"
        )
    return _readable(local_part(output.detach()))


def _readable(tensor: torch.Tensor) -> torch.Tensor:
    why = refusal(tensor)
    if why is None and tensor.numel() == 0:
        why = "the tensor is empty"
    if why is not None:
        raise ValueError(why)
    return tensor


def _device_type(module: torch.nn.Module, inputs: tuple[Any, ...], output: Any) -> str:
    """The device of the first tensor found."""
    for one in (*inputs, output, *module.parameters(recurse=False)):
        if isinstance(one, torch.Tensor):
            return str(one.device.type)
    return "cpu"
