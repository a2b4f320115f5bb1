"""`trainmon.capture`: captures a step's modules and operators in a `with` block."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch

from trainmon._trainmon import CaptureConfig
from trainmon.captures.config_file import ConfigFile
from trainmon.captures.debugger import rank_of_process
from trainmon.captures.session import CaptureSession
from trainmon.common.notices import say, tell, warn_only


class Capturing:
    """A capture of some steps of a training. Each `with` block is one step."""

    def __init__(
        self,
        models: Sequence[torch.nn.Module],
        is_list: bool,
        config: CaptureConfig,
        neutral: bool | None,
        quiet: bool = False,
    ) -> None:
        self._models = models
        self._is_list = is_list
        neutral = config.neutral if neutral is None else neutral
        self._session = CaptureSession(config, neutral, warn_only if quiet else tell)
        self._step = 0

    def __enter__(self) -> Capturing:  # noqa: PYI034  Python 3.10 has no `Self`
        config, rank = self._session.config, rank_of_process(None)
        wants = config.wants_step(self._step) and config.wants_rank(rank)
        if wants and self._session.begin(self._step, rank):
            self._session.start(self._models, self._is_list)
        return self

    def __exit__(self, *_error: object) -> None:
        self._session.stop()
        self._session.finish()
        self._step += 1


def capture(
    model: torch.nn.Module | Sequence[torch.nn.Module] | None = None,
    config: str | None = None,
    *,
    neutral: bool | None = None,
    quiet: bool = False,
    **keys: Any,
) -> Capturing:
    """Captures the modules and operators of a step: `with trainmon.capture(model, dump_path="dump"):`.

    `config`: path of a config file. `keys`: its keys `dump_path`, `level`, `task`, `step`, ...; they override the file.
    `neutral`: overrides the config's key. True, the default: gradients are bitwise unchanged, and a module's `backward`
    records the whole gradient of an input. False: it records this module's share, and if an input has three uses or
    more, the last bits of its gradient may change. `quiet`: prints warnings only, no progress.

    Raises `ConfigError` for a faulty config. An exception inside the `with` block is passed on after the captured data
    is written.
    """
    file = ConfigFile(config)
    parsed = CaptureConfig.read(file.text(), file.name, json.dumps(keys), False)
    for warning in parsed.warnings:
        say(warning)
    is_list = isinstance(model, list | tuple)
    models: list[Any] = [] if model is None else list(model) if is_list else [model]
    return Capturing(models, is_list, parsed, neutral, quiet)
