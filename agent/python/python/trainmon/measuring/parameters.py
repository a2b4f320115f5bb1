"""The watched parameters: which, under which names, and what is remembered of each within a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainmon._trainmon import Monitor, squash_name
from trainmon.common.names import clean_name, namings
from trainmon.common.settings import Settings

if TYPE_CHECKING:
    import torch


@dataclass(eq=False)
class Parameter:
    """One parameter of one model chunk."""

    name: str
    """As it appears in the output."""
    raw: str
    """As the model calls it: a `clean_name`."""
    own: str
    """As the user's own model calls it, without wrappers; `raw` where msprobe's names are shown."""
    vpp_stage: int
    tensor: torch.Tensor
    """The object the optimizer or the framework knows it by."""
    id: int
    is_watched: bool
    """Whether the config's targets ask for it. Others only count in the global norm."""
    is_replica: bool = False
    """Whether another tensor-parallel rank holds the same values and reports them."""
    is_stepped: bool = True
    """Whether the optimizer steps it, as far as is known: a gradient that gathers unused is not the step's."""
    firings: int = 0
    """How often a gradient was added in this step."""
    last_pass: int = -1
    """The backward pass of this step that added the last one, counted from 0."""
    measured: int = 0
    """How many had been added when the step's row of the gradient before aggregation was taken; 0 without one."""
    mark: tuple[int, int] | None = None
    """The gradient as the last backward pass left it, if it was not measured then: its address and version."""
    usual: int = 1
    """So many are expected in a step, at least."""
    before: int = 1
    """So many came in the last step that had any."""
    is_irregular: bool = False
    """Whether backward passes were made without it, where only the pass itself shows its gradient."""
    state_ids: dict[str, int] = field(default_factory=dict)
    """Ids of optimizer state whose name is not one of the known moments."""


def named_parameters(models: Iterable[torch.nn.Module]) -> Iterator[tuple[int, str, torch.nn.Parameter]]:
    """Every parameter once, chunk by chunk in model order: `(vpp_stage, name, parameter)`. Shared ones come
    first-named."""
    for vpp_stage, model in enumerate(models):
        for name, parameter in model.named_parameters():
            yield vpp_stage, clean_name(name), parameter


def register(
    monitor: Monitor,
    settings: Settings,
    models: Sequence[torch.nn.Module],
    named: Iterable[tuple[int, str, torch.Tensor]],
) -> list[Parameter]:
    """Gives every parameter that can take a gradient its id; frozen ones too, they may be unfrozen later."""
    naming_of = namings(models, like_msprobe=settings.like_msprobe)
    listed = [(vpp_stage, raw, naming_of[vpp_stage](raw), tensor) for vpp_stage, raw, tensor in named]
    uses = Counter((vpp_stage, squash_name(own)) for vpp_stage, _, own, _ in listed)
    parameters = []
    for vpp_stage, raw, own, tensor in listed:
        squashed = squash_name(own)
        shown = squashed if settings.squash_name and uses[vpp_stage, squashed] <= 1 else own
        parameter = Parameter(shown, raw, own, vpp_stage, tensor, monitor.register(shown, vpp_stage), is_watched=False)
        choose(monitor, settings, parameter)
        parameters.append(parameter)
    return parameters


def choose(monitor: Monitor, settings: Settings, parameter: Parameter) -> None:
    """Finds out whether the targets ask for a parameter, by any of its names: a config may have those of the wrapped
    model."""
    names = {parameter.own, parameter.raw}
    squashed = squash_name(parameter.raw) if settings.squash_name else parameter.raw
    parameter.is_watched = any(monitor.matches_parameter(name, squashed, parameter.vpp_stage) for name in names)
