"""Communication between ranks: the operations of `torch.distributed`, counted, timed and measured.

The methods of torch's `ProcessGroup` are replaced while a watch requests it. Every call from Python passes them,
however a function of `torch.distributed` was bound. Megatron and FSDP bind it at their import, a pipeline compares
functions by identity, and a script may call the group itself. Operations from C++ are recorded in the dispatcher
(`dispatched`). `docs/collectives.md` lists the operations of each framework.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from trainmon._trainmon import Collectives as Hooks
from trainmon._trainmon import Monitor
from trainmon.captures.function_code import exchange_code
from trainmon.collectives.callers import Callers, CollectiveStacksPrinted
from trainmon.collectives.device_clock import DeviceClock
from trainmon.collectives.dispatched import Dispatched
from trainmon.collectives.groups import describe
from trainmon.collectives.operations import END_OF_GROUP, METHODS, OF_OBJECTS, START_OF_GROUP, called
from trainmon.collectives.stragglers import WINDOW, Stragglers
from trainmon.common.guard import Guard
from trainmon.common.settings import Settings
from trainmon.device.measurer import Measurer
from trainmon.frameworks.base import Framework
from trainmon.hooks.replacement import replace
from trainmon.measurement.labels import Label

__all__ = ["CollectiveStacksPrinted", "Collectives"]

_lock = threading.Lock()
#: The watch whose replacements are installed: one at a time, until it ends.
_holder: weakref.ref[Collectives] | None = None


class Collectives:
    """The operations of one watch, from `attach` to `detach`."""

    def __init__(
        self, monitor: Monitor, guard: Guard, settings: Settings, measurer: Measurer, framework: Framework
    ) -> None:
        self._monitor = monitor
        self._guard = guard
        self._measurer = measurer
        self._framework = framework
        self._asked = settings.collectives
        self._told_from = settings.straggler
        self._callers: Callers | None = None
        self._hooks: Hooks | None = None
        self._dispatched: Dispatched | None = None
        self._stragglers: Stragglers | None = None
        self._undo: list[Callable[[], object]] = []
        self._finalizer: weakref.finalize[..., Any] | None = None
        self._steps = 0

    @property
    def hooks(self) -> Hooks | None:
        """The recorder of the operations; None if they are not measured."""
        return self._hooks

    @contextlib.contextmanager
    def unseen(self) -> Iterator[None]:
        """Excludes this thread's operations inside the block."""
        if self._hooks is None:
            yield
            return
        self._hooks.enter()
        try:
            yield
        finally:
            self._hooks.leave()

    def begun(self) -> list[tuple[str, list[int], int]]:
        """The number of operations that this rank has begun, by group and its ranks."""
        return [] if self._hooks is None else self._hooks.begun()

    def attach(self) -> None:
        """Starts recording operations."""
        global _holder  # noqa: PLW0603
        if self._asked is None or self._undo or not torch.distributed.is_available():
            return
        with _lock:
            if _holder is not None and _holder() is not None:
                self._monitor.say(
                    "info",
                    "this watch records no collective operations: the first watch records those of the whole process",
                    "enable collectives in the first watch only",
                )
                return
            _holder = weakref.ref(self)
        patterns, log_only = self._asked
        if patterns or log_only:
            self._callers = Callers(patterns, log_only=log_only)
        job = self._framework.job
        roles = ((job.tp_group, "tp"), (job.dp_group, "dp"), (job.pp_group, "pp"))
        told = {id(group): role for group, role in roles if group is not None}
        # The methods are the process's and keep what they call alive: a watch without references must be collectable.
        guard, measure = self._guard, weakref.WeakMethod(self._measure_on_device)
        self._hooks = hooks = self._monitor.collectives(
            lambda group: describe(group, told),
            lambda error: guard.failed("collectives", error),
            caller=self._callers,
            device_clock=DeviceClock() if torch.cuda.is_available() else None,
            measure_on_device=lambda *what: None if (method := measure()) is None else method(*what),
        )
        self._dispatched = Dispatched(hooks, guard, has_ddp=self._framework.name == "ddp")
        self._finalizer = weakref.finalize(self, _put_back, self._undo, self._dispatched, hooks, guard)
        self._finalizer.atexit = False
        self._stragglers = Stragglers(self._monitor, hooks, self._told_from)
        try:
            self._replace_all(hooks)
        except BaseException:
            self.detach()
            raise

    def _replace_all(self, hooks: Hooks) -> None:
        process_group = torch.distributed.ProcessGroup
        for name, method in METHODS.items():
            original = vars(process_group).get(name)
            if original is not None:
                op, inputs, outputs, keywords, slots = method
                ours = hooks.method(
                    op, called(original), inputs=inputs, outputs=outputs, keywords=keywords, slots=slots
                )
                self._replace(process_group, name, original, ours)
        for name, stand_in in ((START_OF_GROUP, hooks.start_of_group), (END_OF_GROUP, hooks.end_of_group)):
            original = vars(process_group).get(name)
            if original is not None:
                self._replace(process_group, name, original, stand_in(called(original)))
        self._replace_ends(hooks)
        for name in OF_OBJECTS:
            function = getattr(torch.distributed.distributed_c10d, name, None)
            if function is not None:
                self._undo.append(exchange_code(function, lambda original: _moving_objects(hooks, original)))
        if self._dispatched is not None:
            self._dispatched.attach()

    def _replace_ends(self, hooks: Hooks) -> None:
        work = torch.distributed.Work
        # Torch's own subclasses may have methods of their own, as the backend `fake` does.
        for owner in (work, *(one for one in work.__subclasses__() if one.__module__.startswith("torch._C"))):
            for name, of_work in (("wait", hooks.wait), ("get_future", hooks.get_future)):
                original = vars(owner).get(name)
                if original is not None:
                    self._replace(owner, name, original, of_work(called(original)))

    def _replace(self, owner: Any, name: str, original: Any, ours: Callable[..., Any]) -> None:
        self._undo.append(replace(owner, name, _method(name, original, ours)))

    def _measure_on_device(self, tensor_id: int, kind: int, call: int, tensors: Sequence[torch.Tensor]) -> None:
        if not tensors:
            why = "an operation's tensors are partly on the host and partly on a device, which is not supported"
            self._monitor.observe_unsupported(tensor_id, kind, why)
            return
        label = Label(tensor_id, kind, call)
        if len(tensors) == 1:
            self._measurer.measure(label, tensors[0])
        else:
            self._measurer.queue.enqueue_together(label, tensors)
        self._measurer.launch()

    def before_step(self) -> None:
        """Counts operations that have ended since, before the step ends."""
        if self._hooks is not None:
            self._hooks.settle()
        self._steps += 1

    def compare_ranks(self) -> None:
        """Submits this rank's times of a window of steps."""
        if self._hooks is not None and self._stragglers is not None:
            step = self._monitor.step
            self._stragglers.end_step(step, self._hooks.times() if step % WINDOW == 0 else [])

    @property
    def has_stacks_to_tell(self) -> bool:
        """Whether stacks are requested and those of a whole step are complete: the training must end."""
        return self._callers is not None and self._callers.has_stacks and self._steps > 1

    def tell_stacks(self) -> None:
        """Writes them."""
        if self._callers is not None:
            self._callers.tell(self._monitor)

    def finish(self, seconds: float) -> None:
        """Waits, at most so long, for comparisons with other ranks."""
        if self._stragglers is not None:
            self._stragglers.close(seconds)

    def detach(self) -> None:
        """Restores everything. Operations in flight are discarded."""
        global _holder  # noqa: PLW0603
        if self._finalizer is not None:
            self._finalizer()
        with _lock:
            if _holder is not None and _holder() is self:
                _holder = None


def _put_back(undo: list[Callable[[], object]], dispatched: Dispatched, hooks: Hooks, guard: Guard) -> None:
    guard.run("detach collectives", dispatched.detach)
    while undo:
        guard.run("detach collectives", undo.pop())
    hooks.settle()
    hooks.close()


def _method(name: str, original: Any, ours: Callable[..., Any]) -> Callable[..., Any]:
    """An object that Python binds like the original method: of the same type as torch's own methods, or a function,
    which is slower."""
    sort = type(original)
    if sort.__name__ == "instancemethod":
        bound: Callable[..., Any] = sort(ours)
        return bound

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return ours(self, *args, **kwargs)

    functools.update_wrapper(method, original, assigned=("__doc__",), updated=())
    method.__name__ = method.__qualname__ = name
    return method


def _moving_objects(hooks: Hooks, original: Callable[..., Any]) -> Callable[..., Any]:
    def moving(*args: Any, **kwargs: Any) -> Any:
        hooks.enter_objects()
        try:
            return original(*args, **kwargs)
        finally:
            hooks.leave_objects()

    return moving
