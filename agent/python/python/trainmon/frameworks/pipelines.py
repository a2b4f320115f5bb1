"""torch's own pipelines: the ranks that hold the other stages of a model."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from trainmon.common.world import world_rank
from trainmon.frameworks.job import Job, ranks_of
from trainmon.measurement.norm import Exchange
from trainmon.ranks.exchange import StoreExchange

if TYPE_CHECKING:
    import torch

#: The module and name of torch's class of stages.
_MODULE, _STAGE = "torch.distributed.pipelining.stage", "_PipelineStageBase"


class Pipeline:
    """The pipeline that contains the models of a watch as stages, if there is one.

    The search runs once, at first use: a script may create its stages after it has called `watch`. At the end of the
    first step they exist.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._ranks: tuple[int, ...] | None = None

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of the world whose stages form the model, in order and including this one; empty without a
        pipeline. Cost: if torch's pipelines were imported, one walk over the objects of the process."""
        if self._ranks is None:
            self._ranks = self._find()
        return self._ranks

    def _find(self) -> tuple[int, ...]:
        if world_rank() is None:
            return ()
        if self._job.pp_group is not None:
            return ranks_of(self._job.pp_group)
        stage = next(_stages_of(self._job.models), None)
        return () if stage is None else ranks_of(stage.group)

    def exchange(self, of_stage: Exchange | None) -> Exchange | None:
        """The sum of the norm over the stages, given that of this one; without a pipeline, the given one."""
        if len(self.ranks) < 2:
            return of_stage
        over_stages = StoreExchange(self._job.monitor, self.ranks, "pp")
        return over_stages if of_stage is None else InTurn(of_stage, over_stages)


class InTurn:
    """Sums over the ranks of one exchange, then over those of another."""

    def __init__(self, first: Exchange, second: Exchange) -> None:
        self._first, self._second = first, second

    def submit(self, step: int, squares: float, done: Callable[[float | None], None]) -> None:
        """Submits this rank's part; `done` receives the sum of all. Without the first sum there is none."""

        def added(total: float | None) -> None:
            if total is None:
                done(None)
            else:
                self._second.submit(step, total, done)

        self._first.submit(step, squares, added)

    def close(self, seconds: float) -> None:
        """Waits at most this long for both."""
        deadline = time.monotonic() + seconds
        self._first.close(seconds)
        self._second.close(max(0.0, deadline - time.monotonic()))


def _stages_of(models: Sequence[torch.nn.Module]) -> Iterator[Any]:
    """Torch's stages that run one of the models, a part of it, or a whole that contains it."""
    base = getattr(sys.modules.get(_MODULE), _STAGE, None)
    if base is None:
        return
    ours = {id(module) for model in models for module in model.modules()}
    # By class: a proxy object may run code when its type is queried.
    for stage in [one for one in gc.get_objects() if issubclass(type(one), base)]:
        module = vars(stage).get("submod")
        if module is not None and any(id(one) in ours for one in module.modules()):
            yield stage
