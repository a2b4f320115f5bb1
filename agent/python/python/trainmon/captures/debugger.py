"""`PrecisionDebugger`: msprobe's interface to captures."""

from __future__ import annotations

import json
import os
import threading
from typing import Any, ClassVar

import torch

from trainmon._trainmon import CaptureConfig, ConfigError
from trainmon.captures.config_file import ConfigFile
from trainmon.captures.session import CaptureSession
from trainmon.captures.window import TokenRange
from trainmon.common.notices import say
from trainmon.common.world import world_rank

_lock = threading.RLock()

#: If it is 1, gradients are bitwise unchanged: see `trainmon.capture`, `neutral`.
NEUTRAL_VARIABLE = "TRAINMON_CAPTURE_NEUTRAL"

#: The default config of a capture.
_DEFAULT = '{"task": "statistics", "dump_path": "./dump_path", "rank": [], "step": [], "level": "L1", "statistics": {}}'


class PrecisionDebugger:
    """Captures the steps that its config names.

    One per process: a second construction returns the first object, whatever its arguments. Call `start` before and
    `stop` after the code to capture, and `step` at the end of each step. As a context manager it calls `start` on
    entry, and `stop` and `step` on exit, also after an exception.
    """

    _instance: ClassVar[PrecisionDebugger | None] = None
    _is_made: bool

    def __new__(cls, *_args: Any, **_kwargs: Any) -> PrecisionDebugger:  # noqa: PYI034  Python 3.10 has no `Self`
        with _lock:
            if cls._instance is None:
                instance = super().__new__(cls)
                instance._is_made = False
                cls._instance = instance
            return cls._instance

    def __init__(
        self,
        config_path: str | None = None,
        task: str | None = None,
        dump_path: str | None = None,
        level: str | None = None,
        step: list[int | str] | None = None,
    ) -> None:
        """The arguments override the config file. Raises `ConfigError` for a faulty config."""
        with _lock:
            if self._is_made:
                return
            try:
                self._make(config_path, task, dump_path, level, step)
            except BaseException:
                PrecisionDebugger._instance = None
                raise
            self._is_made = True

    def _make(
        self,
        config_path: str | None,
        task: str | None,
        dump_path: str | None,
        level: str | None,
        step: list[int | str] | None,
    ) -> None:
        arguments = {"task": task, "dump_path": dump_path, "level": level, "step": step}
        self._over = json.dumps({key: value for key, value in arguments.items() if value is not None})
        self._file = ConfigFile(config_path)
        config = self._read(self._file.text() if config_path is not None else _DEFAULT)
        for warning in config.warnings:
            say(warning)
        self._session = CaptureSession(config, config.neutral or os.environ.get(NEUTRAL_VARIABLE) == "1")
        self._is_enabled = config.dump_enable is not False
        self._file.begins(config.dump_enable)
        self._loop = 0
        self._init_step = 0
        self._is_over = False
        self._rank: int | None = None
        self._is_first = True
        self._tokens: TokenRange | None = None

    def _read(self, text: str) -> CaptureConfig:
        return CaptureConfig.read(text, self._file.name, self._over, True)

    @classmethod
    def _get(cls) -> PrecisionDebugger:
        instance = cls._instance
        if instance is None:
            raise RuntimeError("build `PrecisionDebugger` before calling its methods")
        return instance

    @classmethod
    def start(
        cls,
        model: Any = None,
        token_range: list[int] | tuple[int, int] | None = None,
        rank_id: int | None = None,
        scheduled_tokens: dict[str, int] | None = None,
    ) -> None:
        """Starts capturing, if the config selects this step.

        `model`: a module or a list of them; required for modules (L0, mix) and for `token_range`, the first and last
        call of the model to capture, from 0. `rank_id`: the rank if torch.distributed does not give it.
        `scheduled_tokens`: the tokens of each request in this step, for a config's `request_id`.
        """
        with _lock:
            cls._get()._start(model, token_range, rank_id, scheduled_tokens)

    @classmethod
    def stop(cls) -> None:
        """Stops capturing, and writes the data. `start` in the same step continues."""
        with _lock:
            self = cls._get()
            self._reload()
            if self._is_over:
                return
            self._session.stop()
            self._session.write()
            if self._tokens is not None:
                self._tokens.end()

    @classmethod
    def step(cls) -> None:
        """Ends a step."""
        with _lock:
            self = cls._get()
            self._reload()
            if self._is_over:
                return
            self._session.stop()
            if self._tokens is not None:
                self._tokens.end()
            self._session.finish()
            self._loop += 1

    @classmethod
    def save(cls, variable: Any, name: str, save_backward: bool = True) -> None:
        """Captures a value by name, with level `debug`: tensors, numbers, texts, and lists and dicts of them. With
        `save_backward` also the gradients of its tensors when they are computed."""
        with _lock:
            cls._get()._save(variable, name, save_backward)

    @classmethod
    def set_init_step(cls, step: int) -> None:
        """Sets the number of the next step, of a resumed training."""
        if not isinstance(step, int) or isinstance(step, bool) or step < 0:
            raise ValueError(f"set_init_step: expected an integer from 0 on, found {step!r}")
        with _lock:
            self = cls._get()
            self._init_step = step
            self._loop = 0

    @classmethod
    def register_custom_api(cls, module: Any, api: str, api_prefix: str | None = None) -> None:
        """Captures a function of your own, too, as `<prefix>.<api>.<n>.forward`. By default the prefix is the module's
        name."""
        with _lock:
            cls._get()._session.custom.register(module, api, api_prefix)

    @classmethod
    def restore_custom_api(cls, module: Any, api: str) -> None:
        """Stops capturing it."""
        with _lock:
            cls._get()._session.custom.restore(module, api)

    def __enter__(self) -> PrecisionDebugger:  # noqa: PYI034  Python 3.10 has no `Self`
        self.start(self._model_of_context)
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()
        self.step()

    def __call__(self, model: Any = None) -> PrecisionDebugger:
        """Sets the model for `with debugger(model):`."""
        self._model_of_context = model
        return self

    _model_of_context: Any = None

    def _start(self, model: Any, token_range: Any, rank_id: int | None, scheduled: dict[str, int] | None) -> None:
        self._reload()
        config = self._session.config
        step = self._loop + self._init_step
        if not self._is_enabled or self._is_over:
            return
        if config.level == "debug":
            self._join_rank(rank_id)
            return
        models, is_list = _models_of(model)
        if config.is_past(step):
            self._end()
            return
        if not config.wants_step(step):
            return
        self._remember(models, is_list)
        if self._is_first:
            self._is_first = False
            self._rank = rank_of_process(rank_id)
            if token_range is not None:
                self._tokens = TokenRange(models, token_range, self._session)
        self._join_rank(rank_id)
        rows, is_scheduled = rows_of_request(config.request_id, scheduled)
        if not is_scheduled or not config.wants_rank(self._rank) or not self._session.begin(step, self._rank, rows):
            return
        if self._tokens is not None:
            self._tokens.begin(models or self._session.models, is_list)
        else:
            self._session.start(models, is_list)

    def _end(self) -> None:
        self._session.stop()
        if self._tokens is not None:
            self._tokens.end()
        self._is_over = True
        say("all steps of the config have been captured")

    def _remember(self, models: list[torch.nn.Module], is_list: bool) -> None:
        self._session.remember(models, is_list)
        if self._session.config.wants_modules and not self._session.models:
            self._session.tell_once("`start` got no model, so modules are not captured", "call `start(model)`")

    def _join_rank(self, rank_id: int | None) -> None:
        """Updates the rank: the process may have joined its group since."""
        if self._rank is None:
            self._rank = rank_of_process(rank_id)
            is_open = self._session.capture.is_open
            if self._rank is not None and is_open and not self._session.capture.set_rank(self._rank):
                where = f"proc{os.getpid()}"
                say(f"this step's files stay in `{where}`", f"`rank{self._rank}` beside it may be another run's")

    def _save(self, variable: Any, name: str, save_backward: bool) -> None:
        config = self._session.config
        if config.level != "debug" or config.task not in {"tensor", "statistics"} or not self._is_enabled:
            return
        step = self._loop + self._init_step
        if not _can_be_saved(variable):
            say(f"save: `{name}` is not saved: it is a {type(variable).__name__}", "pass a tensor, a number or a text")
            return
        if not config.wants_step(step):
            return
        self._join_rank(None)
        if config.wants_rank(self._rank) and self._session.begin(step, self._rank):
            self._session.capture.save(variable, name, save_backward)

    def _reload(self) -> None:
        """Checks the config file, if it has the switch."""
        changed = self._file.changed(self._is_enabled)
        if changed is None:
            return
        try:
            config = self._read(changed)
        except ConfigError as error:
            self._is_enabled = False
            say(f"the capture is off: its changed config is faulty: {error}")
            return
        if config.dump_enable is not None:
            self._is_enabled = config.dump_enable
        self._session.config = config


def module_dump(module: torch.nn.Module, name: str) -> None:
    """Captures this module alone, as `Module.<name>.<Class>`, and no function, until `module_dump_end`. Call it between
    `start` and `stop`; it has no effect if `start` got the model."""
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module_dump: expected a module, found `{type(module).__name__}`")
    if not isinstance(name, str):
        raise TypeError(f"module_dump: expected a name, found `{type(name).__name__}`")
    with _lock:
        PrecisionDebugger._get()._session.start_single(module, name)


def module_dump_end() -> None:
    """Captures functions again."""
    with _lock:
        PrecisionDebugger._get()._session.end_single()


def _models_of(model: Any) -> tuple[list[torch.nn.Module], bool]:
    if model is None:
        return [], False
    is_list = isinstance(model, list | tuple)
    models = list(model) if is_list else [model]
    for one in models:
        if not isinstance(one, torch.nn.Module):
            raise TypeError(f"start: expected a module or a list of modules, found `{type(one).__name__}`")
    return models, is_list


def rows_of_request(request: str | None, scheduled: dict[str, int] | None) -> tuple[tuple[int, int, int] | None, bool]:
    """The rows of a request's tokens among those of a step, as `(all, first, end)`; and whether there are any."""
    if request is None or scheduled is None:
        return None, True
    counts = list(scheduled.values())
    if not all(isinstance(count, int) and not isinstance(count, bool) and count > 0 for count in counts):
        raise ValueError(f"scheduled_tokens: expected a number of tokens above 0 for each request, found {scheduled!r}")
    if request not in scheduled:
        return None, False
    first = sum(counts[: list(scheduled).index(request)])
    return (sum(counts), first, first + scheduled[request]), True


def rank_of_process(rank_id: int | None) -> int | None:
    """The rank given, or that of torch.distributed; None if there is none (yet)."""
    return world_rank() if rank_id is None else rank_id


def _can_be_saved(value: Any, depth: int = 0) -> bool:
    if depth > 400:
        return False
    if isinstance(value, list | tuple):
        return all(_can_be_saved(one, depth + 1) for one in value)
    if isinstance(value, dict):
        return all(isinstance(key, str) and _can_be_saved(one, depth + 1) for key, one in value.items())
    return isinstance(value, torch.Tensor | int | float | str)
