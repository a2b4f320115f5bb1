"""What a Megatron training must show, computed beside it: a twin of the model without Megatron's DDP and optimizer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from megatron.core import parallel_state
from torch import distributed

from support import megatron_gpt as gpt


@dataclass
class Step:
    """One step, by `(chunk, name)` as the watch sees them; gradients unscaled, in fp32."""

    local: dict[tuple[int, str], list[torch.Tensor]] = field(default_factory=dict)
    """This rank's, the sum up to and with each micro-batch."""
    mean: dict[tuple[int, str], torch.Tensor] = field(default_factory=dict)
    """Aggregated, before clipping."""
    before: dict[tuple[int, str], torch.Tensor] = field(default_factory=dict)
    """The model's parameters."""
    exp_avg: dict[tuple[int, str], torch.Tensor] = field(default_factory=dict)
    """Before the step; so is `exp_avg_sq`. Empty before the first."""
    exp_avg_sq: dict[tuple[int, str], torch.Tensor] = field(default_factory=dict)


class Twin:
    """This rank's tensor-parallel part of the whole model, trained by nobody: each step it takes the parameters."""

    def __init__(self, case: gpt.Case, models: list[Any]) -> None:
        self.case = case
        self.models = models
        with torch.random.fork_rng(devices=[]):
            self.net = gpt.net_of(gpt.config_of(case, pp=1), case)
        self.parameters = {name.removeprefix("module."): one for name, one in self.net.named_parameters()}

    def names(self) -> Iterator[tuple[tuple[int, str], str, torch.nn.Parameter]]:
        """`((chunk, watched name), name in the twin, watched parameter)`."""
        case, stage = self.case, parallel_state.get_pipeline_model_parallel_rank()
        chunks = len(self.models)
        per = case.layers * (case.vpp or 1) // (case.pp * chunks)
        for chunk, model in enumerate(self.models):
            offset = (chunk * case.pp + stage) * per
            for name, parameter in model.named_parameters():
                own = re.sub(r"^(module\.)+", "", name)
                shown = own
                layer = re.search(r"layers\.(\d+)", own)
                if layer is not None:
                    own = own.replace(layer[0], f"layers.{int(layer[1]) + offset}", 1)
                yield (
                    (chunk, shown),
                    "embedding.word_embeddings.weight" if own == "output_layer.weight" else own,
                    parameter,
                )

    def is_tied(self, twin: str) -> bool:
        """Whether two pipeline stages hold the parameter, each with a part of its gradient before reduction."""
        return self.case.pp > 1 and twin == "embedding.word_embeddings.weight"

    def take_over(self) -> None:
        """Sets the twin's parameters to those of all pipeline stages."""
        mine = {twin: parameter.detach().clone() for _, twin, parameter in self.names()}
        stages: list[Any] = [None] * self.case.pp
        distributed.all_gather_object(stages, mine, group=parallel_state.get_pipeline_model_parallel_group())
        for stage in stages:
            for name, value in stage.items():
                self.parameters[name].data.copy_(value)

    def step(self, number: int, scale: float) -> Step:
        """What the step to come must show; `scale` is the loss scale."""
        self.take_over()
        case, found = self.case, Step()
        running: dict[str, torch.Tensor] = {name: torch.zeros(()) for name in self.parameters}
        sums: dict[str, list[torch.Tensor]] = {name: [] for name in self.parameters}
        for micro in range(case.micro):
            self.net.zero_grad(set_to_none=True)
            out = gpt.forward(self.net, gpt.batch(number, parallel_state.get_data_parallel_rank(), micro)).float()
            loss = out.sum() if case.per_token else out.mean() / case.micro
            (loss * scale).backward()
            for name, one in self.parameters.items():
                gradient = torch.zeros_like(one) if one.grad is None else one.grad
                running[name] = running[name] + gradient.float()
                sums[name].append(running[name] / scale)
        means = {name: self._aggregated(one, sums[name][-1]) for name, one in self.parameters.items()}
        for key, twin, parameter in self.names():
            found.before[key] = parameter.detach().clone()
            found.mean[key] = means[twin]
            if not self.is_tied(twin):
                found.local[key] = sums[twin]
        return found

    def _aggregated(self, parameter: torch.nn.Parameter, local: torch.Tensor) -> torch.Tensor:
        is_expert = not getattr(parameter, "allreduce", True)
        group = (
            parallel_state.get_expert_data_parallel_group() if is_expert else parallel_state.get_data_parallel_group()
        )
        total = local.clone()
        distributed.all_reduce(total, group=group)
        size = parallel_state.get_data_parallel_world_size()
        return total / (size * self.case.micro * gpt.BATCH * gpt.LENGTH if self.case.per_token else size)


def moments(steps: list[Step], norms: list[float], clip: float) -> None:
    """Fills in Adam's moments as each step finds them; `norms` are the global ones, by which gradients were clipped."""
    for step, following, norm in zip(steps, steps[1:], norms, strict=False):
        factor = min(1.0, clip / (norm + 1e-6))
        for key, mean in step.mean.items():
            gradient = mean.double() * factor
            first = step.exp_avg.get(key, torch.zeros_like(gradient))
            second = step.exp_avg_sq.get(key, torch.zeros_like(gradient))
            following.exp_avg[key] = 0.9 * first + 0.1 * gradient
            following.exp_avg_sq[key] = 0.95 * second + 0.05 * gradient**2
