"""A capture: its parts are installed when it starts, and removed when it stops."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch

from trainmon._trainmon import Capture, CaptureConfig
from trainmon.captures.aten import OperatorMode
from trainmon.captures.collectives import Collectives
from trainmon.captures.compiled import CompiledCode
from trainmon.captures.custom import CustomFunctions
from trainmon.captures.devices import DeviceNumbers
from trainmon.captures.function_code import EntryPoints
from trainmon.captures.libraries import Libraries
from trainmon.captures.micro_steps import MicroSteps
from trainmon.captures.mode import Mode
from trainmon.captures.modules import ModuleHooks, scripted_modules
from trainmon.captures.optimizers import OptimizerNodes
from trainmon.captures.suspension import Pausable, Pauses, StackMode, guarded
from trainmon.captures.triton import TritonLaunches
from trainmon.captures.volume import Volume
from trainmon.common.names import listed
from trainmon.common.notices import tell
from trainmon.measurement.unobserved import is_capturing

_lock = threading.RLock()

#: The number of modules named in a message about several without entries.
_NAMED = 3


class CaptureSession:
    """Starts and stops the capture of steps. While it is stopped, nothing of it runs in the training."""

    #: The session that is on in this process. Two at a time would take each other's entry points for torch's functions.
    owner: ClassVar[CaptureSession | None] = None

    def __init__(
        self,
        config: CaptureConfig,
        neutral: bool = False,
        tell: Callable[[str, str, str | None], None] = tell,
        volume: int | None = None,
    ) -> None:
        """`neutral`: modules' gradients are recorded such that all sums of gradients keep their order. `tell` receives
        a severity, a message and a hint. `volume`: the bytes of a step's tensors, if known from another one."""
        self.config = config
        self.neutral = neutral
        self._tell = tell
        self.capture = Capture()
        self._process = os.getpid()
        self._entry_points: EntryPoints | None = None
        self._mode: Mode | None = None
        self._operators: OperatorMode | None = None
        self._hooked: ModuleHooks | None = None
        self._optimizers = OptimizerNodes(self.capture)
        self._collectives = Collectives(self.capture)
        self._micro_steps = MicroSteps(self.capture)
        self._devices = DeviceNumbers(self.capture)
        self.custom = CustomFunctions(self.capture)
        self._libraries = Libraries(self.capture)
        self._triton = TritonLaunches(self.capture)
        self._pauses = Pauses(lambda: self.capture.is_on)
        self._compiled = CompiledCode(self.capture, self._pause, self._is_entered)
        self._single: ModuleHooks | None = None
        self._step: int | None = None
        self._volume = Volume(config, tell, volume)
        #: All models given so far, and the prefix of their modules' paths. Weak: only the host keeps them.
        self._models: list[tuple[weakref.ref[torch.nn.Module], str]] = []
        self._told: set[str] = set()

    def begin(self, step: int, rank: int | None, rows: tuple[int, int, int] | None = None) -> bool:
        """Begins a step's files, if they are not begun, and ends those of another step. False: it cannot, and the user
        was informed. `rows`: only a range of rows is captured of tensors with that many rows: `(rows, first, end)`."""
        if self.config.level != "debug" and self._is_refused():
            return False
        if self.capture.is_open and os.getpid() == self._process and self._step != step:
            self.stop()
            self.finish()
        if self.capture.is_open:
            return True
        # Removed when the step ends: the two hold each other.
        self.capture.set_device_numbers(self._devices)
        try:
            self.capture.begin(self.config, step, rank, self._tell, rows)
        except ValueError as error:
            self.capture.set_device_numbers(None)
            self._tell("warning", f"cannot capture step {step}: {error}", None)
            return False
        self._step = step
        self._micro_steps.begin_step()
        self._volume.tell_known(self.capture)
        return True

    @property
    def volume(self) -> int | None:
        """Bytes of the tensors of the step that was captured last; None if none was."""
        return self._volume.of_a_step

    def remember(self, models: Sequence[torch.nn.Module], is_list: bool) -> None:
        """Remembers models: they are captured with every start."""
        known = self.models
        for number, model in enumerate(models):
            if not any(one is model for one in known):
                self._models.append((weakref.ref(model), f"{number}." if is_list else ""))

    @property
    def models(self) -> list[torch.nn.Module]:
        """The models that were given and still exist."""
        self._models = [one for one in self._models if one[0]() is not None]
        found = [reference() for reference, _ in self._models]
        return [model for model in found if model is not None]

    def tell_once(self, message: str, hint: str | None) -> None:
        """Warns of a state that lasts for several steps, once."""
        if message not in self._told:
            self._told.add(message)
            self._tell("warning", message, hint)

    def _is_refused(self) -> bool:
        """Whether nothing may be installed now; warns with the reason."""
        owner = CaptureSession.owner
        if owner is not None and owner is not self:
            if owner._process == os.getpid():
                self.tell_once("another capture is on, so this one does not start", "stop the other one first")
                return True
            # This process was forked while the other one was capturing.
            owner._take_away()
        if is_capturing():
            # Values would be read back, which makes the graph fail; and its replays call nothing that could be
            # captured.
            self.tell_once("cannot capture while a CUDA graph is recorded", "capture a step without CUDA graphs")
            return True
        return False

    def start(self, models: Sequence[torch.nn.Module], is_list: bool) -> None:
        """Captures calls from now on, in this process. If it cannot, nothing is installed and the user was informed."""
        if os.getpid() != self._process or not self.capture.is_open:
            return
        with _lock:
            if self._is_refused():
                return
            if CaptureSession.owner is self:
                self.stop()
            CaptureSession.owner = self
        self.remember(models, is_list)
        try:
            self._volume.tell_least(self.models)
            self._put_in_place()
        except BaseException as error:
            self.stop()
            if not isinstance(error, Exception):
                raise
            # Even an error whose text cannot be formatted must not reach the host.
            with contextlib.suppress(Exception):
                self._tell("warning", f"cannot start the capture: {type(error).__name__}: {error}", None)

    def _put_in_place(self) -> None:
        if self.config.wants_functions:
            self._start_functions()
        if self.config.wants_modules:
            self._micro_steps.attach()
        if self.config.wants_operators:
            self._operators = OperatorMode(self.capture)
        is_seen = self.config.wants_modules or self.config.wants_functions or self.config.wants_operators
        self._hooked = self._hooks(self._operators if self._operators is not None else self._mode)
        for reference, prefix in self._models if is_seen else []:
            model = reference()
            if model is not None:
                self._hooked.attach(model, prefix)
                if self.config.wants_modules:
                    self._tell_scripted(model)
        self.capture.switch(True)
        self._compiled.attach()
        if self._operators is not None:
            self._operators.__enter__()

    def _tell_scripted(self, model: torch.nn.Module) -> None:
        names = [name or type(model).__name__ for name in scripted_modules(model)]
        if names:
            self.tell_once(
                f"scripted modules have no entries: {listed(names, _NAMED)}",
                "hooks do not run inside them; capture the model before `torch.jit.script`",
            )

    def _hooks(self, mode: StackMode | None) -> ModuleHooks:
        wants_backward = self.config.wants_backward
        return ModuleHooks(
            self.capture,
            mode,
            records=self.config.wants_modules or mode is None,
            wants_backward=wants_backward,
            neutral=self.neutral,
            before_call=self._before_call,
        )

    def _is_entered(self, module: object) -> bool:
        """Whether the innermost call of a module in progress here is this one's, or that of the wrapper around it."""
        return any(hooks is not None and hooks.is_inside(module) for hooks in (self._hooked, self._single))

    def _before_call(self) -> None:
        self._optimizers.forget_failed()
        self._volume.called(self.capture)

    def _pause(self, hooks_too: bool) -> Callable[[], None]:
        of_process: list[Pausable | None] = [self._entry_points, self._optimizers, self._collectives, self.custom]
        of_process += [self._hooked, self._single] if hooks_too else []
        of_thread: list[Pausable | None] = [self._mode, self._operators]
        return self._pauses.pause(
            [part for part in of_process if part is not None], [part for part in of_thread if part is not None]
        )

    def _start_functions(self) -> None:
        if self._entry_points is None:
            self._entry_points = EntryPoints(self.capture)
        if self._mode is None:
            self._mode = Mode(self.capture)
        self._entry_points.open()
        self._optimizers.attach()
        self._collectives.attach()
        self.custom.attach()
        self._libraries.name(self.config.custom_op_namespaces)
        self._triton.attach()
        self.capture.set_mode(self._mode)
        self._mode.start()

    def stop(self) -> None:
        """Stops capturing, and removes everything."""
        if os.getpid() == self._process and CaptureSession.owner is self:
            self._take_away()

    def _take_away(self) -> None:
        """Removes each part, whatever another one raises."""
        self.capture.switch(False)
        guarded(self._compiled.detach, self.capture)
        # Pauses in progress restore nothing any more.
        self._pauses = Pauses(lambda: self.capture.is_on)
        if self._operators is not None:
            operators, self._operators = self._operators, None
            # Inside compiled code it is off: the top of the stack then is another mode.
            guarded(operators.push_if_absent, self.capture)
            guarded(lambda: operators.__exit__(None, None, None), self.capture)
        for hooks in (self._hooked, self._single):
            if hooks is not None:
                guarded(hooks.detach, self.capture)
        self._hooked = self._single = None
        guarded(self._micro_steps.detach, self.capture)
        self._stop_functions()
        with _lock:
            if CaptureSession.owner is self:
                CaptureSession.owner = None

    def _stop_functions(self) -> None:
        parts = [self._triton.detach, self.custom.detach, self._collectives.detach, self._optimizers.detach]
        if self._mode is not None:
            parts.insert(0, self._mode.stop)
        if self._entry_points is not None:
            parts.append(self._entry_points.close)
        parts.append(lambda: self.capture.set_mode(None))
        for part in parts:
            guarded(part, self.capture)

    def start_single(self, module: torch.nn.Module, name: str) -> None:
        """Captures this module alone, and no function, until `end_single`."""
        has_models = self._hooked is not None and bool(self.models)
        if not self.capture.is_on or self._single is not None or has_models:
            return
        self._stop_functions()
        self._single = self._hooks(None)
        self._single.attach_one(module, f"Module.{name}.{type(module).__name__}")

    def end_single(self) -> None:
        """Captures functions again."""
        if self._single is None:
            return
        self._single.detach()
        self._single = None
        if self.capture.is_on and self.config.wants_functions:
            self._start_functions()

    def write(self) -> str | None:
        """Writes the step's files as they are now, including the tensors'. Returns the reason if they are incomplete,
        which was reported."""
        if os.getpid() != self._process:
            return None
        guarded(self._devices.finish, self.capture)
        return self._told_failure(self.capture.write)

    def finish(self) -> str | None:
        """Ends the step. Returns the reason if its files are incomplete, which was reported."""
        why = None
        if os.getpid() == self._process:
            guarded(self._devices.finish, self.capture)
            volume = self.capture.volume()
            if volume is not None:
                self._volume.of_a_step = volume[0]
            why = self._told_failure(self.capture.finish)
            self.capture.set_device_numbers(None)
        return why

    def _told_failure(self, act: Callable[[], None]) -> str | None:
        try:
            act()
        except ValueError as error:
            hint = "the record file is kept: run `trainmon recover` to create the files from it"
            self._tell("warning", str(error), hint)
            return str(error)
        return None
