"""The watched parameters: their names, and their state within a step."""

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
    """The name in the output."""
    raw: str
    """The name in the model: a `clean_name`."""
    own: str
    """The name in the user's own model, without wrappers; `raw` with msprobe's names."""
    vpp_stage: int
    tensor: torch.Tensor
    """The parameter object of the optimizer or the framework."""
    id: int
    is_watched: bool
    """Whether the config's targets match it. Others only count in the global norm."""
    is_replica: bool = False
    """Whether another tensor-parallel rank holds the same values and reports them."""
    is_stepped: bool = True
    """Whether the optimizer steps it, as far as is known: a gradient that accumulates unused is not the step's."""
    firings: int = 0
    """The number of gradients added in this step."""
    last_pass: int = -1
    """The backward pass of this step that added the last one, counted from 0."""
    measured: int = 0
    """The number added when the step's row of the gradient before reduction was recorded; 0 without one."""
    mark: tuple[int, int] | None = None
    """The gradient after the last backward pass, if it was not measured then: its address and version."""
    usual: int = 1
    """The minimum number expected in a step."""
    before: int = 1
    """The number in the last step that had any."""
    is_irregular: bool = False
    """Whether backward passes ran without it, if only the pass itself passes its gradient."""
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
    """Gives every parameter that can have a gradient its id; frozen ones too, because they may be unfrozen later."""
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
    """Sets whether the targets match a parameter, by any of its names: a config may have those of the wrapped model."""
    names = {parameter.own, parameter.raw}
    squashed = squash_name(parameter.raw) if settings.squash_name else parameter.raw
    parameter.is_watched = any(monitor.matches_parameter(name, squashed, parameter.vpp_stage) for name in names)
