"""After some steps: computes the fingerprints of tensors with copies on other ranks, and submits them for
comparison."""

from __future__ import annotations

import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trainmon._trainmon import Monitor
from trainmon.common.kinds import MOMENTS, Kind, kind_of
from trainmon.common.settings import Settings
from trainmon.frameworks.base import Content, Framework
from trainmon.measurement.labels import local_part
from trainmon.measurement.parameters import Parameter
from trainmon.measurement.unobserved import is_capturing
from trainmon.replicas.verdict import Copy
from trainmon.replicas.votes import Arriving, ReplicaVotes, Submission

if TYPE_CHECKING:
    import torch


#: Seconds between queries of pending results, at the end.
_PAUSE_S = 0.005


@dataclass(slots=True, frozen=True)
class _Look:
    """This rank's copies of a group at one moment."""

    copies: Sequence[Copy]
    arriving: Arriving

    def then(self, later: _Look) -> _Look:
        """This snapshot, followed by a later one."""

        def both() -> Sequence[int | None] | None:
            first, second = self.arriving(), later.arriving()
            return None if first is None or second is None else [*first, *second]

        return _Look([*self.copies, *later.copies], both)


class Arrivals:
    """Fingerprints on their way from a device to the host: submitted in order, after arrival."""

    def __init__(self, submit: Callable[[Submission], None]) -> None:
        self._submit = submit
        self._under_way: deque[Submission] = deque()

    def __len__(self) -> int:
        return len(self._under_way)

    def add(self, submission: Submission) -> None:
        """Appends a submission."""
        self._under_way.append(submission)

    def hand_on(self) -> None:
        """Submits what has arrived. Only the training's own thread knows when a device may be queried."""
        while self._under_way:
            found = self._under_way[0].arriving()
            if found is None:
                return
            one = self._under_way.popleft()
            self._submit(replace(one, arriving=_known(found)))


class ReplicaCheck:
    """The check of one watch. Tensors without a copy on another rank are not read; without copies there is no thread.

    Parameters are checked before the optimizer's step and after it, states after it. A value that changed at rest (a
    bit flip in memory) is the only difference before the update; the gradients of the step spread it.

    Cost: in one step of `replica_interval`, two passes over the parameters and one over the states that have copies,
    when nothing writes them. The comparison runs beside the training.
    """

    def __init__(
        self,
        monitor: Monitor,
        framework: Framework,
        parameters: Sequence[Parameter],
        settings: Settings,
        kernels: Callable[[torch.device], Any],
    ) -> None:
        """`kernels`: trainmon's of a device, None if none are in use."""
        self._monitor = monitor
        self._framework = framework
        self._parameters = parameters
        self._interval = settings.replica_interval
        self._kernels = kernels
        self._votes: ReplicaVotes | None = None
        self._device: Any = None
        self._last: int | None = None
        #: The step whose parameters were checked before its update, and their snapshots, by group.
        self._before: tuple[int, dict[tuple[int, ...], _Look]] = (-1, {})
        self._arrivals = Arrivals(lambda one: self._open().submit(one))

    def before_step(self) -> None:
        """Checks before the optimizer's step."""
        step = self._monitor.step
        if not self._is_due(step) or is_capturing():
            return
        self._before = step, self._looks((Content.VALUES,), Kind.PARAM_ORIGIN)

    def after_step(self) -> None:
        """Checks after the optimizer's step."""
        if is_capturing():
            # A graph is recorded: it must not contain our work, and no device may be queried.
            return
        self._arrivals.hand_on()
        step = self._monitor.step
        if not self._is_due(step):
            return
        self._last = step
        (looked_at, before), self._before = self._before, (-1, {})
        for ranks, after in self._looks(tuple(Content), Kind.PARAM_UPDATED).items():
            look = before[ranks].then(after) if looked_at == step and ranks in before else after
            moment = f"{step}-{operations_of(ranks)}"
            self._arrivals.add(Submission(ranks, moment, step, look.copies, look.arriving))
        self._arrivals.hand_on()

    def _is_due(self, step: int) -> bool:
        return self._interval != 0 and step % self._interval == 0 and step != self._last

    def _looks(self, contents: Sequence[Content], values: int) -> dict[tuple[int, ...], _Look]:
        """The current contents, by group; `values`: the kind of parameters' values."""
        by_group: dict[tuple[int, ...], list[tuple[Copy, torch.Tensor]]] = {}
        for ranks, copy, tensor in self._held(contents, values):
            by_group.setdefault(ranks, []).append((copy, tensor))
        return {
            ranks: _Look([copy for copy, _ in held], self._fingerprints([tensor for _, tensor in held]))
            for ranks, held in by_group.items()
        }

    def _held(
        self, contents: Sequence[Content], values_are: int
    ) -> Iterator[tuple[tuple[int, ...], Copy, torch.Tensor]]:
        """The tensors with copies, in model order: each parameter, then its states."""
        from trainmon.frameworks.plain import is_lazy

        framework = self._framework
        for parameter in self._parameters:
            if is_lazy(parameter.tensor):
                continue
            groups = framework.replicas(parameter, Content.VALUES)
            values = framework.copied_values(parameter) if groups else None
            if values is not None:
                copy = Copy(values_are, parameter.name, parameter.vpp_stage)
                yield from ((ranks, copy, local_part(values)) for ranks in groups)
            groups = framework.replicas(parameter, Content.MOMENTS) if Content.MOMENTS in contents else ()
            if groups:
                for name, state in framework.moments(parameter).items():
                    copy, part = _copy_of_state(parameter, name), local_part(state)
                    yield from ((ranks, copy, part) for ranks in groups)

    def _fingerprints(self, tensors: Sequence[torch.Tensor]) -> Arriving:
        """The fingerprints; those on the host are computed now."""
        host = [place for place, one in enumerate(tensors) if one.is_cpu]
        found: list[int | None] = [None] * len(tensors)
        read = self._monitor.fingerprints([tensors[place] for place in host])
        for place, number in zip(host, read, strict=True):
            found[place] = number
        elsewhere = [place for place, one in enumerate(tensors) if not one.is_cpu]
        if not elsewhere:
            return lambda: found
        if self._device is None:
            from trainmon.device.fingerprints import DeviceFingerprints

            self._device = DeviceFingerprints(self._kernels)
        launched = self._device.launch([tensors[place] for place in elsewhere])

        def arrived() -> Sequence[int | None] | None:
            numbers = launched()
            if numbers is None:
                return None
            for place, number in zip(elsewhere, numbers, strict=True):
                found[place] = number
            return found

        return arrived

    def _open(self) -> ReplicaVotes:
        if self._votes is None:
            from torch import distributed

            names = "\n".join(f"{one.vpp_stage}:{one.raw}" for one in self._parameters)
            label = f"{zlib.crc32(names.encode()):08x}"
            self._votes = ReplicaVotes(self._monitor, distributed.get_rank(), label)
        return self._votes

    def close(self, seconds: float) -> None:
        """Waits for pending results, at most this long."""
        deadline = time.monotonic() + seconds
        while self._arrivals and not is_capturing() and time.monotonic() < deadline:
            self._arrivals.hand_on()
            time.sleep(_PAUSE_S)
        if self._votes is not None:
            self._votes.close(seconds)


def _known(found: Sequence[int | None]) -> Callable[[], Sequence[int | None]]:
    return lambda: found


def _copy_of_state(parameter: Parameter, name: str) -> Copy:
    known = MOMENTS.get(name)
    if known is not None:
        return Copy(known, parameter.name, parameter.vpp_stage)
    other = kind_of("optimizer_state")
    return Copy(Kind.PARAM_UPDATED if other is None else other, f"{parameter.name}.{name}", parameter.vpp_stage)


def operations_of(ranks: Sequence[int]) -> str:
    """The number of operations of the groups of exactly these ranks, as torch counts them: the same on every rank at
    the same place of the training, whenever it was watched from."""
    from torch.distributed import distributed_c10d

    wanted = set(ranks)
    world: Any = distributed_c10d._world
    numbers = []
    for group, members in world.pg_group_ranks.items():
        if set(members) == wanted:
            try:
                numbers.append(group._get_sequence_number_for_group())
            except (AttributeError, RuntimeError):
                # A backend that does not count.
                numbers.append(0)
    return ".".join(map(str, sorted(numbers)))
