"""Captures in vLLM, without a change to vLLM or to the program.

vLLM calls `register`, the wheel's entry point in `vllm.general_plugins`, in each of its processes. To request a
capture, set the variable `TRAINMON_CAPTURE_CONFIG`, or `additional_config={"trainmon": {"capture_config": ...}}`.
Without a request, only the function that initialises a worker's device, called once, is wrapped.

Each iteration of the engine is a step: the model runner's `execute_model`, with its sampling if requested.
"""

from __future__ import annotations

import functools
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from trainmon.hooks.replacement import replace

#: The path of a capture's config.
CONFIG_VARIABLE = "TRAINMON_CAPTURE_CONFIG"

#: trainmon's key in vLLM's `additional_config`, and the keys below it.
KEY = "trainmon"
_KEYS = {"capture_config", "sampling"}

#: The modules in which vLLM has its wrapper of workers: later versions, earlier ones.
_HOMES = ("vllm.v1.worker.worker_base", "vllm.worker.worker_base")


def register() -> None:
    """Installs a check for a requested capture in this process's workers. vLLM calls it, possibly more than once.
    Raises nothing."""
    with _told("cannot install the vLLM plugin"):
        wrapper = _wrapper_of_workers()
        original = wrapper.init_device
        if hasattr(original, "_is_trainmons"):
            return

        @functools.wraps(original)
        def init_device(self: Any, *args: Any, **kwargs: Any) -> Any:
            made = original(self, *args, **kwargs)
            with _told("cannot start the capture"):
                attach(self.worker)
            return made

        init_device._is_trainmons = True  # type: ignore[attr-defined]
        wrapper.init_device = init_device


def attach(worker: Any) -> None:
    """Captures a worker's computation, if its config or the environment requests it. Raises `ConfigError` and
    `ValueError` for a faulty request."""
    vllm_config = getattr(worker, "vllm_config", None)
    asked = getattr(vllm_config, "additional_config", None)
    asked = asked.get(KEY) if isinstance(asked, Mapping) else None
    keys = checked(asked)
    config = keys.get("capture_config", os.environ.get(CONFIG_VARIABLE))
    if not config:
        return
    if not getattr(getattr(vllm_config, "model_config", None), "enforce_eager", True):
        _tell("vLLM compiles the model, so compiled code is not captured", "start vLLM with `enforce_eager=True`")
    RunnerCapture(worker.model_runner, config, _rank_of(worker), bool(keys.get("sampling"))).put_in_place()


class RunnerCapture:
    """The capture of a model runner: its iterations are steps. No error reaches the engine."""

    def __init__(self, runner: Any, config: str | Mapping[str, Any], rank: int | None, with_sampling: bool) -> None:
        """`config`: a path, or the contents of the file. Raises `ConfigError` if it is faulty."""
        self._runner = runner
        self._rank = rank
        self._with_sampling = with_sampling
        self._debugger = _debugger(config)
        self._is_open = False
        self._failed = False
        #: Restores the runner's own attributes.
        self._undo: list[Callable[[], bool]] = []

    def put_in_place(self) -> None:
        """Captures from the next iteration on. A previous capture of the runner ends."""
        detach(self._runner)
        self._replace("execute_model", self._executing)
        if self._with_sampling and hasattr(self._runner, "sample_tokens"):
            self._replace("sample_tokens", self._sampling)
        self._runner._trainmon_capture = self

    def take_away(self) -> None:
        """Restores the runner."""
        self._end()
        vars(self._runner).pop("_trainmon_capture", None)
        while self._undo:
            if not self._undo.pop()():
                # Another wrapper is around it: it stays, and captures nothing.
                self._failed = True

    def _replace(self, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self._undo.append(replace(self._runner, name, around(getattr(self._runner, name))))

    def _executing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def execute_model(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("dummy_run") or (len(args) > 1 and args[1]):
                # The newer runner warms up this way, without a request.
                return original(scheduler_output, *args, **kwargs)
            self._begin(scheduler_output)
            goes_on = False
            try:
                output = original(scheduler_output, *args, **kwargs)
                # `sample_tokens` follows if there is no output yet.
                goes_on = self._with_sampling and output is None
            finally:
                if not goes_on:
                    self._end()
            return output

        return execute_model

    def _sampling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def sample_tokens(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            finally:
                self._end()

        return sample_tokens

    def _begin(self, scheduler_output: Any) -> None:
        if self._failed:
            return
        self._end()
        self._is_open = True
        scheduled = getattr(scheduler_output, "num_scheduled_tokens", None)
        with self._guarded():
            self._debugger.start(
                self._runner.get_model(),
                rank_id=self._rank,
                scheduled_tokens=scheduled if isinstance(scheduled, dict) else None,
            )

    def _end(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        for act in (self._debugger.stop, self._debugger.step):
            with self._guarded():
                act()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if not self._failed:
                self._failed = True
                _tell(f"the capture ends: {type(error).__name__}: {error}", "the engine continues")


def detach(runner: Any) -> None:
    """Ends the capture of a model runner, if it has one."""
    capture = vars(runner).get("_trainmon_capture")
    if capture is not None:
        capture.take_away()


class WorkerExtension:
    """Methods that vLLM adds to its workers with `worker_extension_cls="trainmon.vllm.WorkerExtension"`. Call them by
    `llm.collective_rpc` to begin and end captures, any number of times."""

    model_runner: Any

    def trainmon_begin(self, config: str | dict[str, Any], sampling: bool = False) -> str:
        """Captures from the next iteration on. Returns an empty text, or the reason why it cannot."""
        try:
            end_debugger()
            RunnerCapture(self.model_runner, config, _rank_of(self), sampling).put_in_place()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def trainmon_end(self) -> None:
        """Ends the capture and restores the runner."""
        detach(self.model_runner)
        end_debugger()


def end_debugger() -> None:
    """Discards the process's `PrecisionDebugger`: the next one has its own config, and counts steps from 0."""
    from trainmon.captures.debugger import PrecisionDebugger

    if PrecisionDebugger._instance is not None:
        PrecisionDebugger.stop()
        PrecisionDebugger.step()
        PrecisionDebugger._instance = None


def _debugger(config: str | Mapping[str, Any]) -> Any:
    from trainmon.captures.debugger import PrecisionDebugger

    if isinstance(config, str):
        return PrecisionDebugger(config)
    # Errors name the file.
    with tempfile.NamedTemporaryFile("w", prefix="additional_config.trainmon.", suffix=".json") as file:
        json.dump(dict(config), file)
        file.flush()
        return PrecisionDebugger(file.name)


def checked(asked: Any) -> Mapping[str, Any]:
    """The keys of `additional_config`. Raises if one of them is unknown."""
    if asked is None:
        return {}
    if not isinstance(asked, Mapping):
        found = type(asked).__name__
        raise TypeError(f"additional_config `{KEY}`: expected an object with {_named(_KEYS)}, found `{found}`")
    unknown = set(asked) - _KEYS
    if unknown:
        raise ValueError(f"additional_config `{KEY}`: unknown key {_named(unknown)}: expected {_named(_KEYS)}")
    config, sampling = asked.get("capture_config"), asked.get("sampling", False)
    if not isinstance(config, str | Mapping | None):
        raise TypeError(f"`{KEY}.capture_config`: expected a path or an object, found `{type(config).__name__}`")
    if not isinstance(sampling, bool):
        raise TypeError(f"`{KEY}.sampling`: expected true or false, found `{sampling!r}`")
    return {key: value for key, value in asked.items() if value is not None}


def _named(keys: set[str]) -> str:
    return ", ".join(f"`{key}`" for key in sorted(keys))


def _rank_of(worker: Any) -> int | None:
    """Counted over all engines: data-parallel engines have process groups of their own."""
    rank = getattr(worker, "rank", None)
    if not isinstance(rank, int):
        return None
    parallel = getattr(getattr(worker, "vllm_config", None), "parallel_config", None)
    index, size = getattr(parallel, "data_parallel_index", 0), getattr(parallel, "world_size", 1)
    return rank + index * size if isinstance(index, int) and isinstance(size, int) else rank


def _wrapper_of_workers() -> Any:
    later, earlier = _HOMES
    try:
        return import_module(later).WorkerWrapperBase
    except ModuleNotFoundError:
        return import_module(earlier).WorkerWrapperBase


@contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        _tell(f"{what}: {type(error).__name__}: {error}", "the engine continues")


def _tell(message: str, hint: str) -> None:
    from trainmon.common.notices import say

    say(message, hint)
