"""The watched parameters: which, under which names, and what is remembered of each within a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainmon._trainmon import Monitor, squash_name

if TYPE_CHECKING:
    import torch

#: What wrappers put into names; users know their modules without.
_WRAPPERS = ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod.")


@dataclass(eq=False)
class Parameter:
    """One parameter of one model chunk."""

    name: str
    """As it appears in the output."""
    raw: str
    """As the model calls it, without wrappers' prefixes."""
    vpp_stage: int
    tensor: torch.Tensor
    """The object the optimizer or the framework knows it by."""
    id: int
    is_watched: bool
    """Whether the config's targets ask for it. Others only count in the global norm."""
    is_replica: bool = False
    """Whether another tensor-parallel rank holds the same values and reports them."""
    firings: int = 0
    """How often a gradient was added in this step: the number of the next micro-batch."""
    state_ids: dict[str, int] = field(default_factory=dict)
    """Ids of optimizer state whose name is not one of the known moments."""


def clean_name(name: str) -> str:
    """A name without what FSDP, activation checkpointing and torch.compile put into it."""
    for wrapper in _WRAPPERS:
        if wrapper in name:
            name = name.replace(wrapper, "")
    return name


def named_parameters(models: Iterable[torch.nn.Module]) -> Iterator[tuple[int, str, torch.nn.Parameter]]:
    """Every parameter once, chunk by chunk in model order: `(vpp_stage, name, parameter)`. Shared ones come
    first-named."""
    for vpp_stage, model in enumerate(models):
        for name, parameter in model.named_parameters():
            yield vpp_stage, clean_name(name), parameter


def register(monitor: Monitor, named: Iterable[tuple[int, str, torch.Tensor]], *, is_squashed: bool) -> list[Parameter]:
    """Gives every parameter that can take a gradient its id; frozen ones too, they may be unfrozen later."""
    listed = list(named)
    uses = Counter((vpp_stage, squash_name(raw)) for vpp_stage, raw, _ in listed)
    parameters = []
    for vpp_stage, raw, tensor in listed:
        squashed = squash_name(raw) if is_squashed else raw
        shown = squashed if uses[vpp_stage, squashed] <= 1 or not is_squashed else raw
        is_watched = monitor.matches_parameter(raw, squashed, vpp_stage)
        identity = monitor.register(shown, vpp_stage)
        parameters.append(Parameter(shown, raw, vpp_stage, tensor, identity, is_watched))
    return parameters
