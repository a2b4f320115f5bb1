"""`trainmon.capture`: a step's modules and operators, captured where a `with` stands."""

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
    """A capture of some steps of a training. Each `with` is one step."""

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
    """A capture; `with` it captures a step.

    `config` is a path of a config file, `keys` are its keys: `dump_path`, `level`, `task`, `step`, ... They outrank the
    file. `neutral` outranks the config's key. True, the default: gradients keep their bits, and a module's `backward`
    tells the whole gradient of an input. False: it tells this module's share, and where an input has three uses or
    more, the last bits of its gradient may change. `quiet`: neither what a step takes nor how far it is written is
    said; warnings are. Raises `ConfigError` on what is wrong. An error in the `with` is not held back: what was
    captured is written.
    """
    file = ConfigFile(config)
    parsed = CaptureConfig.read(file.text(), file.name, json.dumps(keys), False)
    for warning in parsed.warnings:
        say(warning)
    is_list = isinstance(model, list | tuple)
    models: list[Any] = [] if model is None else list(model) if is_list else [model]
    return Capturing(models, is_list, parsed, neutral, quiet)
